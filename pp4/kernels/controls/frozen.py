"""A control: a graph that captured one input by value, as a host that bakes arguments would."""

from __future__ import annotations

from typing import Any

from pp4.kernels.block import SampledBlock
from pp4.kernels.graph import launches_of


def frozen_launches(block: SampledBlock) -> list[dict[str, Any]]:
    """Launches with the request keys of the capture, whatever the requests bring later."""
    keys = block.key.clone()
    return [{**arguments, "key_ptr": keys} for arguments in launches_of(block)]
