"""Fits a model within a number of seconds or of steps, and keeps the weights that validate best.

The steps are planned once: the first ones are timed, and the cosine of the learning rate ends with
the last.  Weights are averaged over the steps; the average is what is validated and what is kept,
so a look in the middle of training is not punished for the large learning rate there.

Nothing is compiled: with torch 2.11 on an H200 the gradients of a compiled drafter were others than
the eager ones (cosines from -0.73 to 0.63, but for one head), and its loss rose from 1.2 to 49.
"""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import torch
from torch import Tensor, nn

from examples.mini.sizes import Fitting
from pp4.errors import BadInputError

M = TypeVar("M", bound=nn.Module)

COLD: Final = 20
"""First steps, which load kernels and are not timed."""
TIMED: Final = 60
"""Steps after which the number of all steps is planned."""
POINTS: Final = 200
"""Points of a curve, at most."""
_MARGIN: Final = 0.97
"""Share of the time left that steps are planned for."""
_LATE: Final = 1.1
"""Share of the time after which training ends, planned or not."""
_LEAST: Final = 0.01
"""Share of the learning rate that is left at the end."""


@dataclass(slots=True)
class Course:
    """How the fitting went.

    Attributes:
        steps: steps that were planned.
        taken: steps that were made.
        seconds: all of it, compiling and validation too.
        tokens_per_second: tokens of the sequences, in the timed steps; None where none were timed.
        passes: passes over the training split.
        best_step: step after which the kept weights were validated.
        best_loss: their loss.
        stopped: why it ended early; empty where it did not.
        training: (step, mean loss of the steps since the last point).
        validation: (step, loss of the averaged weights).
    """

    steps: int = 0
    taken: int = 0
    seconds: float = 0.0
    tokens_per_second: int | None = None
    passes: float = 0.0
    best_step: int = 0
    best_loss: float = math.inf
    stopped: str = ""
    training: list[tuple[int, float]] = field(default_factory=list)
    validation: list[tuple[int, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ways(Generic[M]):
    """What fitting needs of its model.

    Attributes:
        loss: of the next batch, a scalar.
        validate: loss of a model on the validation split.
        keep: writes a model; None where only the end counts.
    """

    loss: Callable[[], Tensor]
    validate: Callable[[M], float]
    keep: Callable[[M, Course], None] | None = None


def rate_at(step: int, steps: int | None, fitting: Fitting) -> float:
    """Learning rate of a step: a straight line up, then a cosine down to a hundredth.

    Args:
        step: from 0.
        steps: of all; None while that is not planned yet.
        fitting: its rate and warm-up.
    """
    warmup = fitting.warmup if steps is None else min(fitting.warmup, max(1, steps // 4))
    if step < warmup:
        return fitting.rate * (step + 1) / warmup
    if steps is None:
        return fitting.rate
    along = (step - warmup) / max(1, steps - warmup)
    return fitting.rate * (_LEAST + (1 - _LEAST) * 0.5 * (1 + math.cos(math.pi * along)))


class Fit(Generic[M]):
    """One fitting.

    Args:
        model: what is trained, in place.
        fitting: how.
        ways: what it needs of the model.
        seconds: for all of it.
        tokens: of a batch.
        batches: of a pass over the training split.
        write_every: seconds between two calls of ``keep``, at least.
    """

    def __init__(
        self,
        model: M,
        fitting: Fitting,
        ways: Ways[M],
        *,
        seconds: float,
        tokens: int,
        batches: int,
        write_every: float = 60.0,
    ) -> None:
        self._model, self._fitting, self._ways = model, fitting, ways
        self._seconds, self._tokens, self._batches = seconds, tokens, max(1, batches)
        self._write_every = write_every
        self._average = copy.deepcopy(model).eval()
        self._best: dict[str, Tensor] = {}
        self._unwritten = False
        self._optimizer = _optimizer(model, fitting)
        self._sum, self._summed = torch.zeros((), device=_device(model)), 0
        self.course = Course()

    def run(self) -> M:
        """Fit; -> the averaged model with the weights that validated best.

        Raises:
            BadInputError: no loss of the validation split was finite.
        """
        self._started = self._written = time.monotonic()
        steps = self._fitting.steps
        timed = self._started
        while steps is None or self.course.taken < steps:
            self._step(steps)
            if steps is None and self.course.taken == COLD:
                # the first look loads what later ones only run
                self._look(steps)
                timed = self._now()
            if steps is None and self.course.taken == TIMED:
                steps = self._planned((self._now() - timed) / (TIMED - COLD))
            if steps is not None and self._ends(steps):
                break
        self._look(steps)
        return self._finished()

    def _step(self, steps: int | None) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rate_at(self.course.taken, steps, self._fitting)
        loss = self._ways.loss()
        loss.backward()
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.course.taken += 1
        self._sum += loss.detach()
        self._summed += 1
        self._averaged()

    @torch.no_grad()
    def _averaged(self) -> None:
        """Move the average towards the weights; in the beginning faster."""
        taken = self.course.taken
        stays = min(self._fitting.average, taken / (taken + 10))
        for kept, now in zip(self._average.parameters(), self._model.parameters(), strict=True):
            if now.requires_grad:
                kept.lerp_(now, 1 - stays)

    def _now(self) -> float:
        """The clock, once the device has done what it was given."""
        if self._sum.device.type == "cuda":
            torch.cuda.synchronize()
        return time.monotonic()

    def _planned(self, per_step: float) -> int:
        """Number of all steps, from the time of one."""
        before = self._now()
        self._look(None)
        looks = self._fitting.evaluations * (self._now() - before)
        left = (self._seconds - (self._now() - self._started)) * _MARGIN - looks
        steps = self.course.taken + max(1, int(left / per_step))
        steps = min(steps, max(TIMED + 1, int(self._fitting.passes * self._batches)))
        self.course.tokens_per_second = round(self._tokens / per_step)
        _say(f"{per_step * 1e3:.2f} ms a step, {steps} steps")
        return steps

    def _ends(self, steps: int) -> bool:
        """Note a point and look, where it is time; -> whether to stop before the planned end."""
        taken, self.course.steps = self.course.taken, steps
        if taken % max(1, -(-steps // POINTS)) == 0 and self._summed:
            self._point()
        if taken % max(1, steps // self._fitting.evaluations) == 0 and taken < steps:
            self._look(steps)
        if self.course.training and not math.isfinite(self.course.training[-1][1]):
            self.course.stopped = "the training loss is not finite"
        elif self._fitting.steps is None and self._late():
            self.course.stopped = "out of time"
        return bool(self.course.stopped)

    def _late(self) -> bool:
        return time.monotonic() - self._started > self._seconds * _LATE

    def _point(self) -> None:
        mean = float(self._sum) / self._summed
        self.course.training.append((self.course.taken, mean))
        self._sum.zero_()
        self._summed = 0

    def _look(self, steps: int | None) -> None:
        """Validate the average; keep it where it is the best so far."""
        loss = self._ways.validate(self._average)
        course = self.course
        course.validation.append((course.taken, loss))
        course.seconds = time.monotonic() - self._started
        course.passes = course.taken / self._batches
        if loss < course.best_loss:
            course.best_step, course.best_loss, self._unwritten = course.taken, loss, True
            state = self._average.state_dict()
            self._best = {name: value.clone() for name, value in state.items()}
        trained = course.training[-1][1] if course.training else math.nan
        _say(
            f"step {course.taken} of {steps or '?'}: training {trained:.4f}, validation {loss:.4f}"
        )
        if self._unwritten and time.monotonic() - self._written >= self._write_every:
            self._write()

    def _write(self) -> None:
        """Write the best weights; they are what the average holds afterwards for a moment."""
        if self._ways.keep is None:
            return
        best = copy.deepcopy(self._average)
        best.load_state_dict(self._best)
        self._ways.keep(best, self.course)
        self._written, self._unwritten = time.monotonic(), False

    def _finished(self) -> M:
        if not self._best:
            raise BadInputError.of(
                "learning rate", "one with finite losses", f"{self._fitting.rate}, none finite"
            )
        if self._summed:
            self._point()
        self._average.load_state_dict(self._best)
        self.course.seconds = time.monotonic() - self._started
        return self._average


def _optimizer(model: nn.Module, fitting: Fitting) -> torch.optim.AdamW:
    """AdamW that decays matrices and nothing else."""
    trained = [one for one in model.parameters() if one.requires_grad]
    groups = [
        {
            "params": [one for one in trained if one.ndim > 1],
            "weight_decay": fitting.weight_decay,
        },
        {"params": [one for one in trained if one.ndim < 2], "weight_decay": 0.0},
    ]
    fused = _device(model).type == "cuda"
    return torch.optim.AdamW(groups, lr=fitting.rate, betas=(0.9, 0.95), fused=fused)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _say(line: str) -> None:
    sys.stdout.write(f"  {line}\n")
    sys.stdout.flush()
