"""Contenders on one GPU: chains of torch operators and small kernels, captured as one graph."""

from dataclasses import dataclass
from importlib import import_module

import torch

from benchmarks.racing import argmax, judging
from benchmarks.racing.field import DEPTH
from benchmarks.racing.inputs import Buffers
from benchmarks.racing.material import bias_of
from pp4.kernels.dyadic24 import TAU, WIDTH
from pp4.kernels.graph import capture

INVERSE_TAU = 1 / float(TAU)


class Absent(Exception):
    """A contender that cannot be here, for a reason that is no fault: a package, a device."""


@dataclass(frozen=True)
class Step:
    """One position: ``token`` ``[B]`` and, where a list is kept, ``ids`` and ``values``."""

    token: torch.Tensor
    ids: torch.Tensor | None = None
    values: torch.Tensor | None = None


class Replayed:
    """Launches as a CUDA graph; on a CPU, where there are none, launched again each time.

    Args:
        launch: launches everything and returns the tensors that it fills.
        device: where.
        first: whether nothing like it was launched before.
    """

    def __init__(self, launch, device, first):
        self._launch, self._graph, self.given = launch, None, None
        if device.type == "cuda":
            if first:
                # it loads modules, tunes and makes communicators: none can be captured
                launch()
            torch.cuda.synchronize()
            kept = []
            self._graph = capture(lambda: kept.append(launch()))
            self.given = kept[0]

    def replay(self):
        """Do it again, with what the inputs now hold."""
        if self._graph is None:
            self.given = self._launch()
        else:
            self._graph.replay()


class Chain:
    """Five positions, each by :meth:`step`, the token of one fed to the next.

    Args:
        setting: the :class:`benchmarks.racing.setting.Setting` of this race.
    """

    draws = "uniform"
    wants_noise = False
    chains = 1
    """Of one graph."""

    def __init__(self, setting):
        self.setting, self._launched = setting, False
        self.weights = (*setting.material.weights(setting.rows), setting.rows == "cached")

    def prepare(self, made):
        """One graph with buffers of its own."""
        setting = self.setting
        buffers = Buffers(setting.material, made, self.wants_noise)
        first, self._launched = not self._launched, True
        replayed = Replayed(lambda: self._chain(buffers), setting.device, first)
        return Prepared(replayed, buffers)

    def _chain(self, buffers):
        previous, steps = buffers.anchor, []
        for index in range(DEPTH):
            steps.append(self.step(buffers, index, previous))
            previous = steps[-1].token
        return steps

    def conditioned(self, base, previous):
        """``[B, columns here]`` BF16 logits of a position."""
        return base + bias_of(previous, *self.weights)

    def judge(self, prepared, made):
        """What is wrong with the last replay."""
        setting = self.setting
        return judging.rival(prepared.answer(), made, setting.material, setting.rows, self.draws)


class Prepared:
    """A captured chain and its buffers."""

    def __init__(self, replayed, buffers):
        self._replayed, self._buffers = replayed, buffers
        self.replay = replayed.replay

    def load(self, made):
        """Other inputs in the same buffers."""
        self._buffers.load(made)

    def answer(self):
        """What the last replay gave, as :class:`benchmarks.racing.judging.Answer`."""
        steps = self._replayed.given

        def stacked(name, dtype):
            parts = [getattr(step, name) for step in steps]
            return None if parts[0] is None else torch.stack(parts, 1).to(dtype)

        return judging.Answer(
            stacked("token", torch.int64),
            stacked("ids", torch.int64),
            stacked("values", torch.float64),
        )

    def digest(self):
        """The tokens of the last replay, for the other rank to compare."""
        return ",".join(str(token) for token in self.answer().token.flatten().tolist())


def drawn(values, ids, uniform):
    """Draw one of 32 candidates of each row: softmax, running sum, place of the uniform number.

    ``values``, ``ids``: ``[B, 32]``; ``uniform``: ``[B, 1]``.  -> ``[B]``.
    """
    share = torch.softmax(values.float() * INVERSE_TAU, dim=-1)
    running = share.cumsum(dim=-1)
    # the sum is near 1, not 1: scaled by it, no number lies beyond the last candidate
    place = torch.searchsorted(running, uniform * running[:, -1:], right=True)
    return ids.gather(1, place)[:, 0]


def selected(base, previous, uniform, first, second, cached):
    """One position of :class:`TopK`; -> (tokens, ids, values)."""
    logits = base + bias_of(previous, first, second, cached)
    values, ids = torch.topk(logits, WIDTH, dim=-1)
    return drawn(values, ids, uniform), ids, values


class TopK(Chain):
    """Operator by operator, as PyTorch offers it."""

    selected = staticmethod(selected)

    def step(self, buffers, index, previous):
        """Top-k, softmax, draw."""
        inputs = buffers.base[index], previous, buffers.uniform[index]
        return Step(*self.selected(*inputs, *self.weights))


class Compiled(TopK):
    """The same by torch's compiler, captured like the others."""

    def __init__(self, setting):
        super().__init__(setting)
        # each shape is compiled for itself, and none counts against a limit of recompilations
        import_module("torch._dynamo").reset()
        how = {"mode": "max-autotune-no-cudagraphs"}
        if setting.device.type != "cuda":
            # traced all the same, but run operator by operator: no C++ compiler is asked for
            how = {"backend": "eager"}
        self.selected = torch.compile(selected, dynamic=False, fullgraph=True, **how)


class FullSoftmax(Chain):
    """Softmax of the whole row, and who arrives first in a race of exponential times.

    It is the draw that torch.multinomial makes, with noise that is ready beforehand: to make it is
    not counted.  Its distribution is another one: nothing is cut off.
    """

    draws, wants_noise = "race", True

    def step(self, buffers, index, previous):
        """Softmax, race."""
        logits = self.conditioned(buffers.base[index], previous).float().mul_(INVERSE_TAU)
        share = torch.softmax(logits, dim=-1)
        return Step(share.div_(buffers.noise[index]).argmax(dim=-1))


class Argmax(Chain):
    """What a row at T = 0 needs at least: the best of each block of columns, the best of those."""

    draws = "argmax"

    def step(self, buffers, index, previous):
        """Two kernels for cached rows; a product before them for others."""
        return Step(argmax.greatest(self.best(buffers.base[index], previous), token=True))

    def best(self, base, previous):
        """``[B, blocks]`` int64 words of the best columns here."""
        slot_of, table, cached = self.weights
        first = self.setting.material.first
        if cached:
            return argmax.best_of_blocks(base, table, previous, slot_of, first)
        bias = bias_of(previous, *self.weights)
        return argmax.best_of_blocks(base, bias, None, None, first)


class Empty(Chain):
    """Five kernels that do nothing: what launches cost in a graph.

    A graph holds many chains, or the host's launches of graphs would be what is timed.
    """

    chains = 20

    def _chain(self, buffers):
        return [super(Empty, self)._chain(buffers) for _ in range(self.chains)][-1]

    def step(self, buffers, index, previous):
        """Nothing."""
        argmax.nothing[(1,)](previous)
        return Step(previous)

    def judge(self, prepared, made):
        """There is nothing to be wrong."""
        return []
