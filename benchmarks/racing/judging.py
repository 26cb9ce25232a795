"""Whether a contender is right, by integers and float64; each answer is a list of what is wrong.

A contender's own tokens lead its chain, so each position is judged by the row that its own previous
token asks for, and one wrong draw is one finding.
"""

from dataclasses import dataclass

import torch

from pp4.kernels import vectorised
from pp4.kernels.dyadic24 import TAU, WIDTH

DRAW_TOLERANCE = 1e-5
"""Of a cumulative probability: 32 FP32 sums and a softmax are off by some 1e-6."""
RACE_TOLERANCE = 1e-3
"""Relative, between the two best of a race in FP32."""
_ROUNDING = 2.0**-8
"""Largest relative error of one rounding to BF16."""


@dataclass(frozen=True)
class Answer:
    """What a chain gave.

    ``token``: ``[B, DEPTH]`` int64; ``ids`` and ``values``: ``[B, DEPTH, 32]`` int64 and float64,
    candidates in the order of the draw, or None where a contender keeps no list.
    """

    token: torch.Tensor
    ids: torch.Tensor | None = None
    values: torch.Tensor | None = None


class Row:
    """What one position of all rows should have been; ``value`` and ``slack`` ``[B, V]`` float64.

    Cached rows are exact.  Uncached ones are sums that a library may order as it likes: each may be
    off by a rounding of the bias and one of the sum, and twice that is let pass.
    """

    def __init__(self, base, previous, material, rows):
        if rows == "cached":
            bits = vectorised.conditioned(base, material.bias_bits(previous, rows))
            self.value = (bits << 16).view(torch.float32).to(torch.float64)
            self.slack = torch.zeros_like(self.value)
            return
        weights = [one.view(torch.bfloat16).to(torch.float64) for one in (material.w1, material.w2)]
        bias = weights[0][previous] @ weights[1].T
        self.value = base.view(torch.bfloat16).to(torch.float64) + bias
        size = bias.abs() + self.value.abs()
        self.slack = torch.where(self.value.isinf(), 0.0, 2 * _ROUNDING * size + 1e-6)

    @property
    def best(self):
        """The 32 largest values, falling; fewer columns are filled with -inf."""
        wide = torch.nn.functional.pad(self.value, (0, WIDTH), value=float("-inf"))
        return wide.topk(WIDTH, dim=1).values

    def near(self, ids, values, times=1):
        """Whether columns hold given values within the slack of their row."""
        slack = self.slack.amax(dim=1, keepdim=True) * times
        own = self.value.gather(1, ids)
        return (own == values) | ((own - values).abs() <= slack)


def rival(answer, made, material, rows, draws):
    """Judge a contender that is not pp4.

    Args:
        answer: an :class:`Answer`.
        made: the :class:`benchmarks.racing.inputs.Given` that it had.
        material: weights and rows.
        rows: "cached" or "uncached".
        draws: how tokens are drawn: "uniform" by the given numbers, "own" by a generator of its
            own, "race" by the given noise over the whole row, "argmax".
    """
    found = []
    previous = made.anchor
    judge = {"uniform": _drawn, "own": _member, "race": _raced, "argmax": _greatest}[draws]
    for index in range(answer.token.shape[1]):
        token = answer.token[:, index]
        if not bool(((token >= 0) & (token < material.vocab)).all()):
            return [*found, f"position {index}: tokens {token.tolist()} of {material.vocab}"]
        row = Row(made.bits[:, index], previous, material, rows)
        listed = None
        if answer.ids is not None:
            listed = (answer.ids[:, index], answer.values[:, index])
            found += [f"position {index}: {what}" for what in _listed(row, *listed)]
        if not found:
            found += [
                f"position {index}: {what}" for what in judge(row, token, listed, made, index)
            ]
        if found:
            return found
        previous = token
    return found


def _listed(row, ids, values):
    """Whether 32 candidates are the best of their row, each with its value."""
    if not bool(((ids >= 0) & (ids < row.value.shape[1])).all()):
        return ["a candidate that is no column"]
    ordered = ids.sort(dim=1).values
    if bool((ordered[:, 1:] == ordered[:, :-1]).any()):
        return ["a candidate twice"]
    if not bool(row.near(ids, values).all()):
        return ["a value that is not its column's"]
    chosen = row.value.gather(1, ids).sort(dim=1, descending=True).values
    slack = 2 * row.slack.amax(dim=1, keepdim=True)
    best = row.best[:, : ids.shape[1]]
    if not bool(((chosen == best) | ((chosen - best).abs() <= slack)).all()):
        return ["a better column was left out"]
    return []


def _shares(values):
    """Probabilities of the candidates, float64."""
    return torch.softmax(values / float(TAU), dim=1)


def _drawn(row, token, listed, made, index):
    """The token's interval of the running sum holds the uniform number."""
    ids, values = listed
    share = _shares(values)
    after = share.cumsum(dim=1)
    uniform = made.uniform[index].to(torch.float64)
    inside = (after > uniform - DRAW_TOLERANCE) & (after - share <= uniform + DRAW_TOLERANCE)
    good = ((ids == token[:, None]) & inside & (share > 0)).any(dim=1)
    return [] if bool(good.all()) else [f"the draw of rows {(~good).nonzero()[:, 0].tolist()}"]


def _member(row, token, listed, made, index):
    """The token can be drawn at all; by which number is the contender's own affair."""
    if listed is not None:
        ids, values = listed
        good = ((ids == token[:, None]) & (_shares(values) > 0)).any(dim=1)
    else:
        value = row.value.gather(1, token[:, None])[:, 0]
        good = (value >= row.best[:, -1] - 2 * row.slack.amax(dim=1)) & value.isfinite()
    return [] if bool(good.all()) else [f"a token of rows {(~good).nonzero()[:, 0].tolist()}"]


def _raced(row, token, listed, made, index):
    """The token arrives first: the largest share divided by its noise."""
    noise = made.noise()[index].to(torch.float64)
    score = row.value / float(TAU) - noise.log()
    slack = RACE_TOLERANCE + 2 * row.slack.amax(dim=1) / float(TAU)
    good = score.gather(1, token[:, None])[:, 0] >= score.amax(dim=1) - slack
    return [] if bool(good.all()) else [f"the race of rows {(~good).nonzero()[:, 0].tolist()}"]


def _greatest(row, token, listed, made, index):
    """The token is the greatest; of an exact row the first of the greatest."""
    top = row.value.amax(dim=1, keepdim=True)
    value = row.value.gather(1, token[:, None])
    good = (value >= top - 2 * row.slack.amax(dim=1, keepdim=True))[:, 0]
    exact = row.slack.amax(dim=1) == 0
    place = torch.arange(row.value.shape[1], device=token.device)
    first = torch.where(row.value == top, place, row.value.shape[1]).amin(dim=1)
    good &= ~exact | (token == first)
    return [] if bool(good.all()) else [f"the argmax of rows {(~good).nonzero()[:, 0].tolist()}"]


def exact(outputs, made, material, rows):
    """Judge pp4: ids, q, tokens and error words equal those of the integer reference.

    ``outputs``: a :class:`pp4.kernels.vectorised.Block` of what the kernel gave.
    """
    device = material.device

    def column(name, dtype=torch.int64):
        words = [getattr(request, name) for request in made.requests]
        if name == "key":
            words = [word - (1 << 64) if word >> 63 else word for word in words]
        return torch.tensor(words, dtype=dtype, device=device)

    expected = vectorised.block(
        material.w1,
        material.w2,
        base=made.bits,
        mode=column("mode", torch.int32),
        key=column("key"),
        position=column("position"),
        round=column("round"),
        anchor=made.anchor,
        bias_of=lambda previous: material.bias_bits(previous, rows),
    )
    names = ("ids", "q", "token", "error")
    return [
        f"{name} other than the integer reference's"
        for name in names
        if not torch.equal(getattr(outputs, name), getattr(expected, name))
    ]
