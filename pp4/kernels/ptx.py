"""What the text of a compiled kernel must and must not say.

A missing barrier or a relaxed signal survives most runs on real hardware, so neither is left to a
race that may not happen: the order of stores, barriers and releases is read from the PTX, and so is
everything that would make two machines round differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LABEL = re.compile(r"^[$%]?[A-Za-z_][\w$]*:")
_OPCODE = re.compile(r"^(?:@!?%?[\w$]+\s+)?([a-z][a-z0-9_]*(?:(?:\.|::)[a-z0-9_]+)*)[\s;]")
# Without a predicate and for all threads of the block; anything less orders only some warps.
_BARRIER = re.compile(r"^(?:bar\.sync|barrier\.sync(?:\.aligned)?)\s+0\s*;")
_LOCAL_SPACES = ("shared", "shared::cta", "local", "param")

# One of each: the flag, the acknowledgement, the error word.
_RELEASES = 3
# Two waits, each of which polls its own word and the error word that the peer writes.
_POLLS = 4
# Each wait also looks at the own error word; solo, the epoch is opened by one wait.
_OWN_POLLS = 2

_APPROXIMATE = {"ex2", "lg2", "sin", "cos", "tanh", "rsqrt"}
_FUSED = {"fma", "mad"}
_FLOATS = {"f16", "f16x2", "bf16", "bf16x2", "f32", "f64"}
_ROUNDED = {"add", "sub", "mul", "div"}
_TENSOR_CORE = {"mma", "wgmma", "tcgen05"}


@dataclass(frozen=True, slots=True)
class _Line:
    """One instruction, or a label: a place that other code jumps to."""

    number: int
    opcode: str
    is_barrier: bool = False

    @property
    def parts(self) -> list[str]:
        return self.opcode.split(".")

    @property
    def is_label(self) -> bool:
        return not self.opcode

    @property
    def is_read_modify_write(self) -> bool:
        return self.parts[0] in ("atom", "red")

    @property
    def is_release(self) -> bool:
        stores = self.is_read_modify_write or self.parts[0] == "st"
        return stores and not {"release", "acq_rel"}.isdisjoint(self.parts)

    @property
    def is_load(self) -> bool:
        """Whether it may read what another block or GPU wrote."""
        return self.parts[0] == "ld" and not set(self.parts).intersection(_LOCAL_SPACES)

    @property
    def is_store(self) -> bool:
        """Whether it may write what another block or GPU sees; a space left open counts."""
        stores = self.is_read_modify_write or self.parts[0] == "st"
        return stores and not set(self.parts).intersection(_LOCAL_SPACES)


def _lines(ptx: str) -> Iterator[_Line]:
    for number, text in enumerate(ptx.splitlines(), 1):
        bare = text.split("//", 1)[0].strip().lstrip("{ \t")
        if _LABEL.match(bare):
            yield _Line(number, "")
        elif found := _OPCODE.match(bare):
            yield _Line(number, found[1], is_barrier=bool(_BARRIER.match(bare)))


def _unordered(lines: list[_Line]) -> Iterator[str]:
    """Releases that other warps' stores may overtake."""
    fenced = False
    why = "nothing before it"
    for line in lines:
        if line.is_release and not fenced:
            yield f"line {line.number}: {line.opcode}: no block barrier right before it, {why}"
        if line.is_barrier:
            fenced = True
        elif line.is_label:
            # whoever jumps here need not have passed the barrier above
            fenced, why = False, f"a label on line {line.number}"
        elif line.is_store:
            fenced, why = False, f"a store on line {line.number}"


def _unguarded(lines: list[_Line]) -> Iterator[str]:
    """Accesses behind a poll that no barrier has ordered after it: other warps did not poll."""
    polled = 0
    for line in lines:
        if line.is_barrier:
            polled = 0
        elif line.parts[0] == "ld" and "acquire" in line.parts:
            polled = line.number
        elif polled and (line.is_store or line.is_load):
            yield f"line {line.number}: {line.opcode}: no barrier since the poll on line {polled}"
            polled = 0


def _forbidden(line: _Line) -> str:
    """Why an instruction may not appear in the selection path; empty where it may."""
    parts = set(line.parts)
    name = line.parts[0]
    if name in _APPROXIMATE or not parts.isdisjoint({"approx", "full"}):
        return "an approximate function"
    if name in _FUSED and not parts.isdisjoint(_FLOATS):
        return "a product fused with a sum"
    if "ftz" in parts:
        return "subnormals flushed to zero"
    if name in _ROUNDED and not parts.isdisjoint({"f32", "f64"}) and "rn" not in parts:
        return "a rounding that may be contracted away"
    if name in _TENSOR_CORE:
        return "a sum in an order that nobody promises"
    if line.is_read_modify_write and "sys" in parts:
        return "a read-modify-write that may cross the link"
    return ""


def _weak_signals(lines: list[_Line]) -> Iterator[str]:
    """Accesses of system scope that order nothing.

    A relaxed look right before an acquire of system scope is let pass: both are on their way at
    once, and what it saw is looked at after the acquire.
    """
    early: list[_Line] = []
    for line in lines:
        parts = set(line.parts)
        if line.parts[0] == "st" and (parts & {"sys", "volatile"}) and "release" not in parts:
            yield f"line {line.number}: {line.opcode}: a store for the peer that is no release"
        look = line.parts[0] == "ld" and "sys" in parts
        if look and "acquire" in parts:
            early = []
        elif look:
            early.append(line)
        elif line.parts[0] != "ld":
            yield from map(_no_acquire, early)
            early = []
    yield from map(_no_acquire, early)


def _no_acquire(line: _Line) -> str:
    return f"line {line.number}: {line.opcode}: a poll that is no acquire"


def _count(lines: list[_Line], name: str, *needed: str) -> int:
    return sum(line.parts[0] == name and {*needed} <= {*line.parts} for line in lines)


def _missing(lines: list[_Line], paired: bool) -> Iterator[str]:
    """Signals that the protocol needs and the text does not have."""
    chain = _count(lines, "atom", "acq_rel", "gpu", "add")
    if not chain:
        yield "retirement: no acquire-release count of GPU scope, at least 1 needed"
    releases = _count(lines, "st", "release", "sys")
    polls = _count(lines, "ld", "acquire", "sys")
    own = _count(lines, "ld", "acquire", "gpu")
    least = _OWN_POLLS if paired else 1
    if own < least:
        yield f"waits: {own} looks at the own error word, at least {least} needed"
    if paired and releases < _RELEASES:
        yield f"signals: {releases} release stores of system scope, at least {_RELEASES} needed"
    if paired and polls < _POLLS:
        yield f"waits: {polls} acquire loads of system scope, at least {_POLLS} needed"


def order_faults(ptx: str, *, releases: int, polls: int) -> tuple[str, ...]:
    """Return what is wrong with the signals of a kernel that selects nothing.

    Args:
        ptx: text of one specialisation.
        releases: release stores of system scope that it needs at least.
        polls: acquire loads of system scope that it needs at least.

    Returns:
        Findings in the order of the text, the missing ones last; empty where all is well.
    """
    lines = list(_lines(ptx))
    wrong = [*_unordered(lines), *_unguarded(lines)]
    for line in lines:
        if line.is_read_modify_write and "sys" in line.parts:
            wrong.append(f"line {line.number}: {line.opcode}: a read-modify-write of system scope")
    wrong += _weak_signals(lines)
    for name, needed in (("st.release", releases), ("ld.acquire", polls)):
        found = _count(lines, *name.split("."), "sys")
        if found < needed:
            wrong.append(f"signals: {found} {name} of system scope, at least {needed} needed")
    return tuple(wrong)


def faults(ptx: str, *, paired: bool) -> tuple[str, ...]:
    """Return what is wrong with a compiled kernel, one readable line each.

    Args:
        ptx: text of one specialisation.
        paired: whether it is the one of a rank of a pair, which signals a peer.

    Returns:
        Findings in the order of the text, the missing ones last; empty where all is well.
    """
    lines = list(_lines(ptx))
    wrong = [*_unordered(lines), *_unguarded(lines)]
    for line in lines:
        if why := _forbidden(line):
            wrong.append(f"line {line.number}: {line.opcode}: {why}")
    return (*wrong, *_weak_signals(lines), *_missing(lines, paired))
