"""What crosses between coordinator, supervisor and worker: frames and the models inside them."""

from pp4.wire.frames import (
    MAX_FRAME,
    Decoder,
    Event,
    Message,
    Reply,
    Request,
    encode,
    encode_reply,
)

__all__ = [
    "MAX_FRAME",
    "Decoder",
    "Event",
    "Message",
    "Reply",
    "Request",
    "encode",
    "encode_reply",
]
