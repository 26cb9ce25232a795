"""A target whose distributions are known, and drafts that fail when a test says so."""

import hashlib
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch

from pp4.engine.drafting import Cause
from pp4.engine.interface import Step
from pp4.errors import BadInputError
from pp4.kernels import dyadic24, philox, reference
from pp4.verifier.proposal import validated
from pp4.verifier.units import Mode


class TableTarget:
    """A target of which every distribution is a function of the tokens before, by their hash.

    What means nothing in a step is NaN, so whoever looks at it sees it; so is whatever a call
    returned, once the next one is made, as with a target that computes into the same arrays.

    Args:
        vocab: V.
        width: of the features.
        slots: and rows of a step.
        window: tokens of a row.
        context: tokens of a sequence.
        memory: how many tokens a distribution depends on, all where it is None.
        spread: standard deviation of the logits.
    """

    def __init__(
        self, vocab=12, width=4, *, slots=3, window=6, context=96, memory=None, spread=2.0
    ):
        self.vocab, self.width = vocab, width
        self.slots, self.window, self.context = slots, window, context
        self.memory, self.spread = memory, spread
        self.kept = {}
        self._pending, self._returned = {}, []
        self.logits_after = cache(self._logits_after)

    def _logits_after(self, tokens):
        """``[V]`` float32; rounded, so that some are equal."""
        digest = hashlib.sha256(f"logits {tokens}".encode()).digest()
        random = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        logits = random.normal(scale=self.spread, size=self.vocab)
        return (np.round(logits * 4) / 4).astype(np.float32)

    def seen(self, tokens):
        """Those of the tokens that a distribution depends on."""
        return tuple(tokens) if self.memory is None else tuple(tokens[-self.memory :])

    def after(self, tokens):
        """Logits ``[V]`` after tokens."""
        return self.logits_after(self.seen(tokens))

    def features_of(self, tokens):
        """Features ``[width]`` of the last token, by all that are there: any finite bits."""
        digest = hashlib.shake_256(f"features {tuple(tokens)}".encode()).digest(2 * self.width)
        bits = np.frombuffer(digest, np.int16) & ~0x4000
        return torch.from_numpy(bits).view(torch.bfloat16)

    # -- the protocol -----------------------------------------------------------------------

    def length(self, slot):
        return len(self.kept[slot])

    def prefill(self, slot, tokens):
        assert 0 <= slot < self.slots
        self._require(tokens)
        self.kept[slot] = list(tokens)
        self._pending.pop(slot, None)
        features = torch.zeros(len(tokens), self.width, dtype=torch.bfloat16)
        for end in range(len(tokens)):
            features[end] = self.features_of(tokens[: end + 1])
        self._return(features)
        return features

    def step(self, rows):
        assert len({row.slot for row in rows}) == len(rows) > 0
        shape = (self.slots, self.window)
        logits = torch.full((*shape, self.vocab), torch.nan)
        features = torch.full((*shape, self.width), torch.nan, dtype=torch.bfloat16)
        self._pending = {}
        self._return(logits, features)
        for index, row in enumerate(rows):
            self._require(row.tokens)
            assert 1 <= len(row.tokens) <= self.window
            before = self.kept[row.slot]
            assert len(before) + len(row.tokens) <= self.context
            for place in range(len(row.tokens)):
                tokens = before + list(row.tokens[: place + 1])
                logits[index, place] = torch.from_numpy(self.after(tokens))
                features[index, place] = self.features_of(tokens)
            self._pending[row.slot] = list(row.tokens)
        return Step(logits, features)

    def _return(self, *arrays):
        for array in self._returned:
            array.fill_(torch.nan)
        self._returned = arrays

    def keep(self, slot, count):
        tokens = self._pending.pop(slot)
        assert 1 <= count <= len(tokens)
        self.kept[slot] += tokens[:count]

    def _require(self, tokens):
        for token in tokens:
            if type(token) is not int or not 0 <= token < self.vocab:
                raise BadInputError.of("token", f"below {self.vocab}", repr(token))


def greedy(target, prompt, limit, stop=None):
    """What a target says at temperature 0, without an engine: the lower id on ties."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < limit:
        logits = target.after(tokens).tolist()
        tokens.append(logits.index(max(logits)))
        if tokens[-1] == stop:
            break
    return tuple(tokens[len(prompt) :])


@dataclass
class FakeDrafts:
    """Drafts for a table target, in the place of a worker's.

    Attributes:
        target: whose tokens are known.
        plan: for each draft in turn what becomes of it: a :class:`Cause`, or how many tokens of the
            proposal the target would say itself at temperature 0; the last entry goes on.
        depth: of proposals.
        sampled: whether requests above temperature 0 get sampled drafts.
    """

    target: TableTarget
    plan: list
    depth: int = 5
    sampled: bool = True
    open_slots: dict = field(default_factory=dict)
    features: dict = field(default_factory=dict)
    wants: list = field(default_factory=list)
    given: dict = field(default_factory=dict)
    turn: int = 0

    def open(self, slot, request, key):
        assert slot not in self.open_slots
        self.open_slots[slot] = (request, key)
        self.features[slot] = []

    def keep(self, slot, features):
        assert features.dtype == torch.bfloat16
        assert features.isfinite().all()
        self.features[slot] += list(features)

    def close(self, slot):
        del self.open_slots[slot], self.features[slot]

    def as_dict(self):
        return {"asked": len(self.wants)}

    def draft(self, wants):
        assert len({want.slot for want in wants}) == len(wants) > 0
        return [self._one(want) for want in wants]

    def _one(self, want):
        self.wants.append(want)
        self._check(want)
        planned = self.plan[min(self.turn, len(self.plan) - 1)]
        self.turn += 1
        if isinstance(planned, Cause):
            return planned
        request, key = self.open_slots[want.slot]
        made = self._proposal(want, key, planned)
        self.given[request, want.round] = made
        return made

    def _check(self, want):
        """What a worker would see of a wrong context."""
        kept = self.target.kept[want.slot]
        assert want.position == len(kept) + 1 == len(self.features[want.slot]) + 1
        for end, told in enumerate(self.features[want.slot]):
            assert torch.equal(told, self.target.features_of(kept[: end + 1]))

    def _proposal(self, want, key, right):
        sampled = self.sampled and want.temperature > 0
        ids = np.full((self.depth, 32), -1, np.int32)
        q = np.zeros((self.depth, 32), np.float32)
        tokens = np.zeros(self.depth, np.int32)
        said = [*self.target.kept[want.slot], want.anchor]
        for index in range(self.depth):
            logits = self.target.after(said)
            if sampled:
                ids[index], q[index], token = _drawn(logits, key, want.position + index, want.round)
            else:
                largest = int(logits.argmax())
                token = largest if index < right else (largest + 1) % self.target.vocab
            tokens[index] = token
            said.append(int(token))
        mode = Mode.SAMPLED if sampled else Mode.DELTA if want.temperature else Mode.GREEDY_T0
        return validated(
            ids=ids,
            q=q,
            tokens=tokens,
            mode=mode,
            depth=self.depth,
            definition=dyadic24.DEFINITION,
            vocabulary=self.target.vocab,
            generation=1,
            slot=want.slot,
            round=want.round,
            position=want.position,
            key=key,
        )


def _drawn(logits, key, position, round_):
    """A draw of the definition's from logits that are near the target's."""
    row = reference.round_bf16(np.roll(logits, 1) * np.float32(0.2) + logits)
    listed = reference.top_ids(row)
    tickets = np.array(dyadic24.allocate(row[listed].tolist()))
    ids, q = np.full(32, -1, np.int32), np.zeros(32, np.float32)
    ids[: len(listed)] = listed
    q[: len(listed)] = tickets / dyadic24.TICKETS
    ticket = philox.draft_ticket(key=key, position=position, round=round_)
    return ids, q, listed[int(np.searchsorted(np.cumsum(tickets), ticket, side="right"))]
