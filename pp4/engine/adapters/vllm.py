"""Proposals in the form of vLLM's V1 rejection sampler, without vLLM.

Nothing here was run with vLLM.  What is said of it was read in stored copies of its source, or in
the survey of public verifiers that pp4 was started with; docs/adapters.md says which where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pp4.engine.adapters.checking import checked
from pp4.engine.adapters.handshake import Agreed
from pp4.engine.adapters.interface import Answered, Converted, EngineAdapter, Gap
from pp4.errors import BadInputError
from pp4.kernels import dyadic24
from pp4.verifier.proposal import Proposal
from pp4.verifier.units import Mode

_SOURCE: Final = (
    "vllm-project/vllm, vllm/v1/sample/rejection_sampler.py at 7f6fc1c5ce8d (u in FP64) and at "
    "0097a7bbf1d9 (u in FP32), stored copies read on 2026-11-30; neither is its newest"
)
V1_GAPS: Final = (
    Gap(
        "zero word",
        "a token is accepted on p / q >= u with u in [0, 1), so that u = 0 accepts where p is 0",
        "2**-24 for each test of a token that the target, or a grammar, excludes, where u is FP32, "
        "2**-53 where it is FP64: counted",
        _SOURCE,
    ),
    Gap(
        "float ratio",
        "p, q and their ratio are FP32, and u is one of 2**24 values, or of 2**53",
        "below 2**-23 in total variation for each token, 3e-8 on average over 200 pairs of dyadic "
        "p and q; below 2**-24 and 8e-10 where u is FP64: counted, the residual taken as exact",
        _SOURCE,
    ),
    Gap(
        "empty residual",
        "where max(p - q, 0) is zero throughout after a rejection, the argmax of it is token 0",
        "q * 2**-24 where p is two units in the last place below q, or one unit and u is FP64: "
        "token 0 at p = 0: counted",
        _SOURCE,
    ),
    Gap(
        "float residual",
        "the residual is the argmax of max(p - q, 0) over exponential noise, all in FP32, from a p "
        "that is not quantised",
        "not measured",
        _SOURCE,
    ),
    Gap(
        "equal at zero",
        "a request at temperature 0 is held against the argmax of FP32 probabilities, not of "
        "logits, by an argmax that does not say which of equal ones it takes",
        "where two logits have one probability, another token than without drafts: not measured",
        _SOURCE,
    ),
    Gap(
        "other words",
        "acceptance and residual take words of the engine's generator, not of the request's key",
        "tokens differ from those of pp4's verifier, and nothing here shows that the words are "
        "independent of the draft's: not measured",
        "survey of public projects, section 5.3, layouts of Philox; section 3, problems 1 and 22",
    ),
    Gap(
        "never run",
        "the form was held against the source of one version, and never put into it",
        "unknown; a version that reads its inputs otherwise may do anything",
        "of this module",
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class V1Drafts:
    """B sequences of a step, N tokens altogether, sequence by sequence.

    Attributes:
        draft_token_ids: ``[N]`` int32.
        num_draft_tokens: B numbers; 0 where a sequence is decoded plainly.
        cu_num_draft_tokens: ``[B]`` int32, their running sums, each with its own.
        draft_probs: ``[N, V]`` float32, each row q: it sums to exactly 1 in any order.  None where
            no token was sampled: then q is 1 at each token.
    """

    draft_token_ids: Tensor
    num_draft_tokens: list[int]
    cu_num_draft_tokens: Tensor
    draft_probs: Tensor | None


@dataclass(frozen=True, slots=True)
class VllmV1Adapter(EngineAdapter[V1Drafts]):
    """Proposals for vLLM's V1 rejection sampler; it is not exact, see ``gaps``.

    A sampled row of ``draft_probs`` is q, zero beside its candidates.  In a step with one, tokens
    of greedy drafts have a row that is 1 at the token, whatever their request's temperature.

    Attributes:
        agreed: the handshake.
        device: of the tensors.
    """

    name: ClassVar[str] = "vLLM V1"
    gaps: ClassVar[tuple[Gap, ...]] = V1_GAPS
    at_zero: ClassVar[str] = (
        "compared with the argmax of the target's FP32 probabilities; its one-hot row is not read"
    )

    agreed: Agreed
    device: torch.device | str = "cpu"

    def convert(self, rows: Sequence[Answered]) -> Converted[V1Drafts]:
        """See :meth:`EngineAdapter.convert`; with a sampled token it takes 4 * N * V bytes."""
        proposals, refusals = checked(self.agreed, rows)
        counts = [0 if one is None else one.depth for one in proposals]
        used = [one for one in proposals if one is not None]
        form = V1Drafts(
            draft_token_ids=self._words([token for one in used for token in one.tokens.tolist()]),
            num_draft_tokens=counts,
            cu_num_draft_tokens=self._words(list(accumulate(counts))),
            draft_probs=self._dense(used) if _any_sampled(used) else None,
        )
        return Converted(form, proposals, refusals)

    def _words(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def _dense(self, used: Sequence[Proposal]) -> Tensor:
        """``[N, V]`` float32; each place is written once, so no order of writes matters."""
        vocabulary = self.agreed.wanted.vocab
        places, shares = [], []
        first = 0
        for one in used:
            own, share = _sparse(one, vocabulary)
            places.append(own + first * vocabulary)
            shares.append(share)
            first += one.depth
        dense = torch.zeros(first * vocabulary, dtype=torch.float32, device=self.device)
        where = torch.from_numpy(np.concatenate(places)).to(self.device)
        values = torch.from_numpy(np.concatenate(shares)).to(self.device)
        return dense.index_copy_(0, where, values).view(first, vocabulary)


def _any_sampled(used: Sequence[Proposal]) -> bool:
    return any(one.mode is Mode.SAMPLED for one in used)


def _sparse(one: Proposal, vocabulary: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Places in ``[depth * V]`` and q there; tickets below 2**24 and their parts fit FP32."""
    if one.mode is Mode.SAMPLED:
        position, column = np.nonzero(one.tickets)
        ids = one.ids[position, column].astype(np.int64)
        shares = one.tickets[position, column].astype(np.float32) / np.float32(dyadic24.TICKETS)
    else:
        position = np.arange(one.depth)
        ids, shares = one.tokens.astype(np.int64), np.ones(one.depth, np.float32)
    return position * vocabulary + ids, shares


def for_runner(
    runner: str, agreed: Agreed, device: torch.device | str = "cpu"
) -> EngineAdapter[V1Drafts]:
    """The adapter of a model runner of vLLM.

    V2 has none: its verifier takes draft logits and makes a softmax of its own, so that the q it
    uses is not the q that was drawn from.

    Args:
        runner: ``v1`` or ``v2``.
        agreed: the handshake.
        device: of the tensors.

    Raises:
        BadInputError: V2, or no runner of vLLM.
    """
    if runner != "v1":
        found = "v2, which makes another q out of logits" if runner == "v2" else repr(runner)
        raise BadInputError.of("vLLM runner", "v1, whose verifier takes probabilities", found)
    return VllmV1Adapter(agreed, device)
