"""Small drafters of recorded shapes, batches for them, and what the exact reference expects."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from pp4.drafter import packing
from pp4.drafter.config import DrafterConfig
from pp4.drafter.model import Drafter
from pp4.drafter.sampling import geometry_of
from pp4.drafter.tp_drafter import TPDrafter
from pp4.kernels.block import Request
from pp4.kernels.expected import reference_outputs
from pp4.kernels.link import SoloLink
from pp4.kernels.reference_block import ReferenceBlock
from tests.unit.drafter.checkpoints import REDUCED, SMALL, random_map, random_tensors
from tests.unit.drafter.running import features_of, weights_of

INACTIVE, SAMPLED, GREEDY = 0, 1, 2
WIDE = replace(SMALL, vocab=150, draft_vocab=150, mask_token=149)
SEVEN = replace(WIDE, block=7)
MAPPED = replace(REDUCED, vocab=150, draft_vocab=97, mask_token=149)
CAPPED = replace(WIDE, softcap=1.5)
SLOTS, CONTEXT = 4, 24


def never(mine):
    """Stands where nothing may be gathered."""
    raise AssertionError("gathered where both shards are here")


def at_once(launch):
    """As where nothing is saved by recording."""
    return launch


def parts_of(config, ranks=(0, 1), seed=0, device="cpu"):
    tensors = random_tensors(config, seed)
    return [weights_of(config, tensors, rank, 2, device=device) for rank in ranks]


def solo(config, shapes=(), *, on=True, rows=4, device="cpu", **more):
    """A drafter that holds both shards, with its shapes recorded."""
    link = SoloLink(rows, device=device) if on else None
    given = {
        "slots": SLOTS,
        "context": CONTEXT,
        "cache_mib": 0,
        "gather": never,
        "repeated": at_once,
        "link": link,
        "geometry": geometry_of(config, tile=64),
        "make_block": ReferenceBlock,
        **more,
    }
    drafter = TPDrafter(parts_of(config, device=device), **given)
    for batch, n_out in shapes:
        drafter.prepare([batch], [n_out])
    return drafter


@dataclass(frozen=True)
class Row:
    """One request's part of a batch; its features are those of its number."""

    request: int
    length: int
    anchor: int
    mode: int = SAMPLED
    round: int = 1

    @property
    def key(self):
        return (1 << 64) - 1 - 977 * self.request

    @property
    def position(self):
        return self.length + 1


PADDING = None


def catch_up(cache, config, rows):
    """Open the requests of rows that are new, and append the features that they lack."""
    for row in rows:
        if row is None:
            continue
        if row.request not in cache._live:
            cache.open(row.request)
        known = cache.length(row.request)
        if known < row.length:
            features = features_of(config, CONTEXT, row.request)[known : row.length]
            cache.append(row.request, features.to(cache.keys.device))


def packed(drafter, rows):
    """The inputs of a batch as the host writes them."""
    record = np.zeros((), packing.input_type(len(rows)))
    for place, row in enumerate(rows):
        if row is None:
            continue
        record["slot"][place], record["length"][place] = drafter.cache.place(row.request)
        # features that came are kept: a test that asks for fewer would ask for something else
        assert record["length"][place] == row.length, row
        for name in ("anchor", "mode", "position", "round", "key"):
            record[name][place] = getattr(row, name)
    return torch.from_numpy(np.frombuffer(record.tobytes(), "<i4").copy())


def modes_of(rows):
    return [INACTIVE if row is None else row.mode for row in rows]


def draft(drafter, n_out, rows):
    """Run a batch; -> (what has the outputs, rows as one record each, words of errors)."""
    catch_up(drafter.cache, drafter.config, rows)
    shape = (len(rows), n_out)
    drafter.inputs(shape).copy_(packed(drafter, rows))
    captured = drafter.heads(shape, modes_of(rows))
    raw = captured.outputs.cpu().numpy().tobytes()
    rows_type = packing.row_type(drafter.config.block)
    found = np.frombuffer(raw, rows_type, len(rows))
    tail = np.frombuffer(raw, "<i8", offset=len(rows) * rows_type.itemsize)
    assert len(tail) == packing.TAIL_WORDS // 2
    return captured, found, tail


def base_of(config: DrafterConfig, rows, n_out, device="cpu"):
    """Hidden states and base logits by a plain drafter of each rank; -> ([B,k,H], [B,n,V])."""
    logits = []
    for part in parts_of(config, device=device):
        plain = Drafter(part, slots=SLOTS, context=CONTEXT)
        catch_up(plain.cache, config, rows)
        requests = [None if row is None else row.request for row in rows]
        anchors = [0 if row is None else row.anchor for row in rows]
        hidden = plain.hidden(plain.cache.rows(requests, anchors))
        logits.append(plain.base(hidden, n_out))
    return hidden, torch.cat(logits, dim=-1)


def expected(config, rows, n_out, device="cpu"):
    """Outputs by the exact reference, over base logits that are computed apart."""
    _, logits = base_of(config, rows, n_out, device)
    tensors = random_tensors(config)
    w1, w2 = (tensors[f"markov_head.markov_{one}.weight"].float().numpy() for one in ("w1", "w2"))
    requests = [
        Request(mode=INACTIVE)
        if row is None
        else Request(row.mode, row.key, row.position, row.round, row.anchor)
        for row in rows
    ]
    ids = [int(one) for one in random_map(config)] if config.mapped else None
    return reference_outputs(w1, w2, requests, logits.float().cpu().numpy(), ids)


CONFIGS = {"five": WIDE, "seven": SEVEN, "reduced": MAPPED, "capped": CAPPED}
MIXED = (Row(0, 7, 3), Row(1, 0, 12, GREEDY), Row(2, 20, 149, SAMPLED, round=(1 << 32) - 1))


def greedy(rows):
    return [row and replace(row, mode=GREEDY) for row in rows]


def check(config, rows, n_out, found):
    """Every member of every row, used positions and unused ones."""
    wanted = expected(config, rows, n_out)
    for name in ("ids", "q", "token", "error"):
        used = found[name][:, :n_out]
        assert used.tobytes() == getattr(wanted, name).tobytes(), name
    unused(found, n_out)
    return wanted


def unused(found, n_out):
    for name in found.dtype.names:
        assert not found[name][:, n_out:].any(), name
