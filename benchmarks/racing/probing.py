"""Build each probe with inputs whose answer is known, and compile it where there is no GPU."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import triton

from benchmarks.racing import places
from benchmarks.racing import probe_kernels as kernels
from benchmarks.racing.contenders import Absent
from benchmarks.racing.field import DEPTH
from pp4.kernels import dyadic24, philox, reference, vectorised
from pp4.kernels.dyadic24 import WIDTH
from pp4.kernels.geometry import Geometry
from pp4.kernels.head import paired, panels, values_of
from pp4.kernels.layout import NARROW_BITS, WIDE_BITS
from pp4.kernels.sampled_fused import interpreted

COLUMNS = 64640
"""Of one shard of a vocabulary of 129280."""
ROUNDS = 200
BUDGET_NS = 5_000_000_000
POLLS, FEW_POLLS = 1 << 23, 60_000
"""Of a wait for words: seconds, on a GPU and interpreted."""
_ROW = 1024
"""int32 words of a row: the bytes of 2048 columns of BF16."""
_HOPS = 64
_LISTS = 32
_TOKENS = 512


@dataclass
class Probe:
    """One kernel, ready to be launched.

    ``arguments``: of launch ``index``; ``check``: how often it was launched (chains of DEPTH) ->
    what is wrong; ``each``: how many steps one launch makes; ``expected``: text for a person.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: Callable[[int], dict[str, Any]]
    check: Callable[[int], list[str]]
    each: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    def launch(self, index):
        """One launch."""
        self.kernel[self.grid](**self.arguments(index), **self.options)

    def chain(self):
        """A chain of DEPTH, as a block has it."""
        for index in range(DEPTH):
            self.launch(index)


def _wrong(good, what):
    return [] if good else [what]


def _has_pdl():
    from triton.backends.nvidia.compiler import CUDAOptions

    return "launch_pdl" in CUDAOptions.__dataclass_fields__ and hasattr(
        triton.language.extra.cuda, "gdc_wait"
    )


def relay(device, batch, *, loads, pdl):
    """Five nodes, each of which hands a word on; or hands nothing on."""
    if pdl and (interpreted(kernels.relay) or not _has_pdl()):
        raise Absent("programmatic dependent launch: not interpreted, or not in this Triton")
    tokens = torch.zeros(DEPTH + 1, dtype=torch.int32, device=device)

    def check(chains):
        expected = list(range(DEPTH + 1)) if loads and chains else [0] * (DEPTH + 1)
        return _wrong(tokens.tolist() == expected, f"tokens {tokens.tolist()}")

    return Probe(
        kernels.relay,
        (1,),
        lambda index: {"tokens": tokens, "index": index, "LOADS": loads, "PDL": pdl},
        check,
        options={"launch_pdl": True} if pdl else {},
    )


def retire(device, batch):
    """As many blocks as a row has tiles."""
    counter, last = (torch.zeros(batch, dtype=torch.int64, device=device) for _ in range(2))

    def check(chains):
        count, ends = counter.tolist(), last.tolist()
        good = ends == [DEPTH * chains] * batch and count == [DEPTH * chains * _LISTS] * batch
        return _wrong(good, f"{ends} last blocks of {count}")

    return Probe(
        kernels.retire, (_LISTS, batch), lambda index: {"counter": counter, "last": last}, check
    )


def dependent(device, batch, *, rows):
    """A cycle through all rows in an order that no prefetcher guesses."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(3))
    following = torch.empty(rows, dtype=torch.int32)
    following[order] = order.roll(-1).to(torch.int32)
    table = following.to(device)[:, None].expand(rows, _ROW).contiguous()
    at = torch.zeros(1, dtype=torch.int32, device=device)
    place_of = torch.empty_like(order)
    place_of[order] = torch.arange(rows)

    def check(chains):
        expected = int(order[(int(place_of[0]) + DEPTH * chains * _HOPS) % rows])
        return _wrong(int(at) == expected, f"row {int(at)}, expected {expected}")

    return Probe(
        kernels.dependent,
        (1,),
        lambda index: {"table": table, "at": at, "steps": _HOPS, "WIDTH": _ROW},
        check,
        each=_HOPS,
    )


def select(device, batch, *, tile, warps, columns=COLUMNS):
    """Tiles of a shard, cached rows."""
    geometry = Geometry(vocab=2 * columns, split=columns, tile=tile)
    stride = -(-columns // 128) * 128
    shape = (batch, stride)
    logits, bias = (places.normal(seed, shape, 3.0, device) for seed in (21, 22))
    tiles = -(-columns // tile)
    out = torch.zeros((batch, tiles, WIDTH), dtype=torch.int64, device=device)

    def check(chains):
        rows = reference.conditioned(values_of(logits), values_of(bias))[:, :columns]
        found = ((out & 0xFFFFFFFF) ^ 0xFFFFFFFF).tolist()
        missing = -columns % geometry.group
        padded = np.pad(rows, ((0, 0), (0, missing)), constant_values=-np.inf)
        groups = padded.reshape(batch, -1, geometry.group).max(axis=2)
        for row, number in itertools.product(range(batch), range(tiles)):
            first = number * geometry.groups
            part = groups[row, first : first + geometry.groups]
            best = [first + place for place in reference.top_ids(part)]
            if found[row][number][: len(best)] != best:
                return [f"tile {number} of row {row}"]
        return []

    return Probe(
        kernels.select,
        (tiles, batch),
        lambda index: {
            "logits": logits, "bias": bias, "out": out, "size": columns,
            "stride128": stride // 128, "TILE": tile, "GROUP": geometry.group, "BITS": WIDE_BITS,
            "INTERPRETED": interpreted(kernels.select),
        },
        check,
        options={"num_warps": warps, "enable_fp_fusion": False},
    )  # fmt: skip


def products(device, batch, *, columns=COLUMNS):
    """Rows without a bias row, two a block; of an odd number the last one twice."""
    geometry = Geometry(vocab=2 * columns, split=columns)
    w1 = places.normal(41, (_TOKENS, geometry.rank_dim), 1.0, device)
    w2 = places.normal(42, (columns, geometry.rank_dim), 0.05, device)
    tokens = (torch.arange(batch + batch % 2, device=device).clamp(max=batch - 1) * 7).int()
    words, laid = paired(w1), panels(w2, geometry)
    count = -(-columns // geometry.panel_width)
    shape = (len(tokens), count * geometry.panel_width)
    out = torch.zeros(shape, dtype=torch.int16, device=device)

    def check(chains):
        expected = vectorised.markov_bias(w1.index_select(0, tokens), w2)
        return _wrong(torch.equal(out[:, :columns], expected), "other sums than the tree's")

    return Probe(
        kernels.products,
        (count, len(tokens) // 2),
        lambda index: {
            "tokens": tokens, "w1": words, "w2": laid, "out": out,
            "PANEL": geometry.panel_width, "WORDS": geometry.pairs,
        },
        check,
        options=geometry.options(),
    )  # fmt: skip


def _words(seed, batch, lists, device):
    """``[batch, lists, 32]`` falling candidate words with ids that are all different."""
    image = 0xC000 + (places.hashed(seed, (batch, lists, WIDTH), "cpu") & 0x1FF)
    ids = torch.arange(lists * WIDTH).view(lists, WIDTH)
    words = (image << 32) | (0xFFFFFFFF - ids)
    return words.sort(dim=2, descending=True).values.contiguous().to(device)


def merge(device, batch):
    """The lists of one row's tiles, of which every other one rises."""
    words = _words(31, batch, _LISTS, device)
    falling = ((words >> 32) - 0xC000 << NARROW_BITS | words & (1 << NARROW_BITS) - 1).int()
    falling = falling.sort(dim=2, descending=True).values
    rises = (torch.arange(_LISTS, device=device) % 2 == 1)[:, None]
    lists = torch.where(rises, falling.flip(2), falling).contiguous()
    out = torch.zeros((batch, WIDTH), dtype=torch.int32, device=device)

    def check(chains):
        best = lists.flatten(1).sort(dim=1, descending=True).values[:, :WIDTH]
        return _wrong(torch.equal(out, best), "other words than the best of all")

    return Probe(
        kernels.merge,
        (batch,),
        lambda index: {"lists": lists, "out": out, "LISTS": _LISTS, "PADDED": _LISTS},
        check,
        options={"num_warps": 4},
    )


def look_into(device, batch, *, tile, columns=COLUMNS):
    """32 groups of a row, scattered over it."""
    geometry = Geometry(vocab=2 * columns, split=columns, tile=tile)
    stride = geometry.stride
    logits, bias = (places.normal(seed, (batch, stride), 3.0, device) for seed in (21, 22))
    groups = columns // geometry.group
    chosen = torch.stack(
        [
            torch.randperm(groups, generator=torch.Generator().manual_seed(row))[:WIDTH]
            for row in range(batch)
        ]
    )
    keys = (1 << WIDE_BITS) | ((1 << WIDE_BITS) - 1 - chosen)
    keys, out = keys.to(device), torch.zeros((batch, WIDTH), dtype=torch.int64, device=device)

    def check(chains):
        rows = reference.conditioned(values_of(logits), values_of(bias))
        ids = ((out & 0xFFFFFFFF) ^ 0xFFFFFFFF).tolist()
        wrong = []
        for row in range(batch):
            first = chosen[row].sort().values[:, None] * geometry.group
            places_of = (first + torch.arange(geometry.group)).flatten().tolist()
            best = [places_of[place] for place in reference.top_ids(rows[row, places_of])]
            wrong += _wrong(ids[row] == best, f"row {row}")
        return wrong

    return Probe(
        kernels.look_into,
        (batch,),
        lambda index: {
            "logits": logits, "bias": bias, "keys": keys, "out": out, "size": columns,
            "stride": stride, "TILE": tile, "TILES": geometry.tiles, "GROUP": geometry.group,
            "BITS": WIDE_BITS,
        },
        check,
        options=geometry.options(),
    )  # fmt: skip


def draw(device, batch):
    """Two lists of a row."""
    both = _words(41, batch, 2, device)
    keys = places.hashed(42, (batch,), device) * 77777
    out = torch.full((batch, WIDTH + 1), -1, dtype=torch.int32, device=device)

    def check(chains):
        return [
            f"row {row}"
            for row in range(batch)
            if tuple(out[row].tolist()) != _drawn(both[row], int(keys[row]))
        ]

    return Probe(
        kernels.draw,
        (batch,),
        lambda index: {"both": both, "keys": keys, "out": out},
        check,
        options={"num_warps": 4, "enable_fp_fusion": False},
    )


def _drawn(lists, key):
    """Tickets and place by the definition; all images here are of positive numbers."""
    best = sorted(lists.flatten().tolist(), reverse=True)[:WIDTH]
    bits = np.array([((word >> 32) & 0x7FFF) << 16 for word in best], np.uint32)
    tickets = dyadic24.allocate(bits.view(np.float32).tolist())
    ticket = philox.draft_ticket(key=key, position=5, round=9)
    return (*tickets, dyadic24.draw(tickets, ticket))


def _exchange(kernel, device, link, given, options):
    """A ping-pong over a link; every launch goes on with later epochs."""
    fault = torch.full((1,), -1, dtype=torch.int32, device=device)
    rounds, polls = (ROUNDS, POLLS) if device.type == "cuda" else (3, FEW_POLLS)
    start = int(link.epochs[0]) + 1
    launched = itertools.count()

    def arguments(index):
        return {
            **given, "fault_out": fault, "own_workspace": link.own_address,
            "peer_workspace": link.peer_address, "rank": link.rank, "max_polls": polls,
            "start": start + rounds * next(launched), "rounds": rounds,
        }  # fmt: skip

    def check(chains):
        return _wrong(int(fault) == 0, f"fault {int(fault)}")

    return Probe(kernel, (1,), arguments, check, each=2 * rounds, options=options)


def flag(device, batch, link):
    """As the product's exchange: words, release of the flag, acquire."""
    given = {
        "own_error": link.own_error, "rows": link.rows, "budget": BUDGET_NS,
        "INTERPRETED": interpreted(kernels.ping_pong_flag),
    }  # fmt: skip
    return _exchange(kernels.ping_pong_flag, device, link, given, {"num_warps": 4})


def word(device, batch, link):
    """The variant with the epoch in the words."""
    return _exchange(kernels.ping_pong_word, device, link, {}, {"num_warps": 1})


_TYPES = {torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64"}
_WIDE = ("stride", "own_workspace", "peer_workspace", "start", "budget", "max_polls")


def compiled(probe, arch=90):
    """Compile a probe's kernel for ``sm_<arch>`` without a GPU; -> its PTX."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    arguments = probe.arguments(0)
    signature, constants, aligned = {}, {}, {}
    for place, parameter in enumerate(probe.kernel.params):
        value = arguments[parameter.name]
        if parameter.is_constexpr:
            signature[parameter.name], constants[parameter.name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[parameter.name] = _TYPES[value.dtype]
            # what a launch finds out about a tensor of torch by itself
            aligned[place,] = [["tt.divisibility", 16]]
        else:
            signature[parameter.name] = "i64" if parameter.name in _WIDE else "i32"
    source = ASTSource(probe.kernel, signature, constants, aligned)
    target = GPUTarget("cuda", arch, 32)
    return triton.compile(source, target=target, options=probe.options).asm["ptx"]
