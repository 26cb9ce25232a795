"""Chains of tokens that are drafted and verified by the thousand, and what came out, counted.

Target and drafter are tables: their distributions depend on the token before, by its remainder, so
that a token at any place has one distribution for each kind of token before it.
"""

from dataclasses import dataclass

import numpy as np
import torch

from pp4.kernels import dyadic24, reference
from pp4.kernels.vectorised_rows import draft_tickets, draw
from pp4.verifier import vectorised
from pp4.verifier.batch import Batch
from pp4.verifier.units import Mode

CONTEXTS = 3
ANCHOR, ROUND, POSITION = 1, 9, 100
CHUNK = 1 << 13


@dataclass
class Tables:
    """Of each context: ids and tickets of the drafter, probabilities of the target."""

    ids: torch.Tensor
    tickets: torch.Tensor
    p: torch.Tensor

    @property
    def vocabulary(self):
        return self.p.shape[1]


def tables(seed, vocabulary, temperature, keep=None, tau=1.0):
    """Random tables.

    Args:
        seed: of both.
        vocabulary: of both.
        temperature: of the target.
        keep: how many tokens the target keeps (top-k), all where it is None.
        tau: of the tickets, in units of the definition's 0.7.
    """
    random = np.random.default_rng(seed)
    logits = random.normal(scale=2.0, size=(CONTEXTS, vocabulary))
    drafted = logits + random.normal(scale=0.5, size=logits.shape)
    ids, tickets = [], []
    for row in reference.round_bf16(drafted.astype(np.float32)):
        ids.append(reference.top_ids(row))
        tickets.append(dyadic24.allocate((row[ids[-1]] / np.float32(tau)).tolist()))
    scaled = torch.from_numpy(logits / temperature)
    if keep:
        least = scaled.topk(keep, dim=1).values[:, -1:]
        scaled = torch.where(scaled >= least, scaled, -torch.inf)
    return Tables(
        torch.tensor(ids, dtype=torch.int32),
        torch.tensor(tickets, dtype=torch.int32),
        scaled.softmax(dim=1).float(),
    )


def drafted(made, depth, mode, key):
    """A batch of proposals, each from its request's own DRAFT stream."""
    count = len(mode)
    before = torch.full((count,), ANCHOR)
    kept = []
    for index in range(depth):
        context = before % CONTEXTS
        ids, tickets = made.ids[context], made.tickets[context]
        position = torch.full((count,), POSITION + index)
        ticket = draft_tickets(key=key, position=position, round=torch.full_like(key, ROUND))
        place = torch.where(mode == Mode.SAMPLED, draw(tickets.long(), ticket), 0)
        token = ids.gather(1, place[:, None])[:, 0]
        kept.append((ids, torch.where((mode == Mode.SAMPLED)[:, None], tickets, 0), token))
        before = token.long()
    ids, tickets, tokens = (torch.stack(parts, dim=1) for parts in zip(*kept, strict=True))
    counters = torch.full_like(key, POSITION), torch.full_like(key, ROUND)
    return Batch(ids, tickets, tokens, mode, key, *counters)


def counted(made, depth, modes, *, seed, edit=None, words=None):
    """Draft and verify.

    Args:
        made: tables.
        depth: n.
        modes: ``[B]`` int32.
        seed: the top half of each request's key; its row is the other half.
        edit: batch -> batch that the verifier gets; as it is where it is None.
        words: batch -> words, the streams' own where it is None.

    Returns:
        By mode, counts ``[n + 1, CONTEXTS, V]`` of the tokens at each place by the one before.
    """
    counts = {
        mode: torch.zeros(depth + 1, CONTEXTS * made.vocabulary, dtype=torch.int64) for mode in Mode
    }
    for first in range(0, len(modes), CHUNK):
        mode = modes[first : first + CHUNK]
        key = (seed << 32) + first + torch.arange(len(mode))
        batch = drafted(made, depth, mode, key)
        before = torch.cat((torch.full((len(mode), 1), ANCHOR), batch.tokens), dim=1)
        found = vectorised.verify(
            made.p[before % CONTEXTS], edit(batch) if edit else batch, words and words(batch)
        )
        assert not found.error.any()
        cells = (before % CONTEXTS) * made.vocabulary + found.tokens
        for one, table in counts.items():
            for place in range(depth + 1):
                emitted = (mode == one) & (found.tokens[:, place] >= 0)
                size = table.shape[1]
                table[place] += torch.bincount(cells[emitted, place], minlength=size)
    return {one: table.view(depth + 1, CONTEXTS, made.vocabulary) for one, table in counts.items()}
