"""What a worker can do, as its clients, its receipts and its operator are told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pp4.wire.frames import Model

ABI: Literal["pp4-draft-v1"] = "pp4-draft-v1"
"""Names the meaning of requests and replies; a change of either gets another name."""
Size = Annotated[int, Field(ge=1)]
Decimal = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,3})(\.[0-9]{0,7}[1-9])?$")]
"""A number as its shortest decimal text, so that two of them are equal or are not."""


class Offer(Model):
    """A worker's capabilities, fixed from its start to its end.

    Attributes:
        definition: name of the numerical definition.
        definition_sha256: digest of its constants and vectors.
        tau: temperature of q; the digest covers it, and only a number can be told in a refusal.
        candidates: of a position, K; the digest covers it as well.
        vocab: tokens of the target; ids on the wire are below it.
        draft_vocab: tokens that can be drafted.
        bounds: first and past-the-last draft id of each rank.
        block: queries of a block, and positions of every reply's arrays.
        depths: positions that can be asked for; one for each connection.
        feature_width: BF16 values of one token's features.
        context: tokens that a request may have features of.
        slots: requests that can be open at once.
        batches: captured batch sizes, rising.
        sampled: whether sampled drafting is on; where it is off every request is drafted greedily.
        device: model of the devices.
        devices: each rank's device by name.
    """

    abi: Literal["pp4-draft-v1"] = ABI
    definition: str
    definition_sha256: str
    tau: Decimal
    candidates: Size
    vocab: Size
    draft_vocab: Size
    bounds: tuple[tuple[int, int], tuple[int, int]]
    block: Size
    depths: tuple[Size, ...]
    feature_width: Size
    context: Size
    slots: Size
    batches: tuple[Size, ...]
    sampled: bool
    device: str
    devices: tuple[str, str]
