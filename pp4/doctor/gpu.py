"""Checks of the GPUs, by asking ``nvidia-smi``: the driver's own word, without a CUDA context."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pp4.doctor.model import Check, Status
from pp4.doctor.probes import Probes

_FIELDS = ("index", "name", "driver_version", "mig.mode.current", "compute_mode")
_PAIR = "pair-qualify --hold local, measure"
_SOLO = "solo-qualify, pair-qualify --hold local, measure"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One row of the driver's list.

    Attributes:
        index: position in the list.
        name: model.
        driver: version of the driver.
        mig: ``Enabled``, ``Disabled`` or ``[N/A]``.
        compute_mode: ``Default`` where several processes may use it.
    """

    index: str
    name: str
    driver: str
    mig: str
    compute_mode: str


def check_gpus(probes: Probes) -> Iterator[Check]:
    """Look at the GPUs of this machine; none is an answer, not an error."""
    program = probes.which("nvidia-smi")
    if program is None:
        yield Check("gpus", Status.MISSING, "no nvidia-smi", _SOLO, "install the NVIDIA driver")
        yield _not_asked("there is no driver")
        return
    answer = probes.ask(
        [program, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    )
    gpus = parse_gpus(answer.out) if answer.ok else None
    if gpus is None:
        found = answer.problem or "an answer that does not fit the question"
        yield Check("gpus", Status.FAIL, f"nvidia-smi: {found}", _SOLO, "repair the driver")
        yield _not_asked("nvidia-smi failed")
        return
    yield _count(gpus)
    yield _peer_access(probes, program, gpus)
    if gpus:
        yield _mig(gpus)
        yield _mps(probes, gpus)


def parse_gpus(text: str) -> tuple[Gpu, ...] | None:
    """Read the CSV answer; ``None`` where a row has another shape than what was asked for."""
    gpus = []
    for line in filter(None, map(str.strip, text.splitlines())):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(_FIELDS) or not cells[0].isdigit():
            return None
        gpus.append(Gpu(*cells))
    return tuple(gpus)


def parse_matrix(text: str) -> dict[tuple[str, str], str] | None:
    """Read the matrix of ``nvidia-smi topo -p2p``.

    Returns:
        The word for each ordered pair of GPUs (``OK``, ``NS``, ...), or ``None`` where the text
        holds no matrix or a row of another length.
    """
    rows = [line.split() for line in text.splitlines()]
    names: list[str] = []
    matrix: dict[tuple[str, str], str] = {}
    for row in rows:
        if not row or not row[0].startswith("GPU"):
            if matrix:
                break
            continue
        if not names:
            names = row
            continue
        if len(row) != len(names) + 1:
            return None
        matrix.update(((row[0], name), word) for name, word in zip(names, row[1:], strict=True))
    return matrix or None


def _count(gpus: tuple[Gpu, ...]) -> Check:
    if not gpus:
        return Check("gpus", Status.MISSING, "none", _SOLO, "add a GPU, or use a receiving host")
    models = sorted({gpu.name for gpu in gpus})
    found = f"{len(gpus)} x {' / '.join(models)}, driver {gpus[0].driver}"
    status, todo = Status.OK, ""
    if len(gpus) == 1:
        status, todo = Status.WARN, "a pair needs two GPUs; one is enough for solo-qualify"
    elif len(models) > 1:
        status, todo = Status.WARN, "qualify two GPUs of one model"
    return Check("gpus", status, found, _SOLO, todo)


def _peer_access(probes: Probes, program: str, gpus: tuple[Gpu, ...]) -> Check:
    if len(gpus) < 2:
        return _not_asked("fewer than two GPUs")
    words: dict[str, dict[tuple[str, str], str]] = {}
    for direction in ("r", "w"):
        answer = probes.ask([program, "topo", "-p2p", direction])
        matrix = parse_matrix(answer.out) if answer.ok else None
        if matrix is None:
            found = f"not known: nvidia-smi {answer.problem or 'printed no matrix'}"
            return Check("peer access", Status.WARN, found, _PAIR, "gate 0 measures it anyway")
        words[direction] = matrix
    pairs = [pair for pair in words["r"] if pair[0] < pair[1]]
    good = [
        (a, b)
        for a, b in pairs
        if all(matrix.get(p) == "OK" for matrix in words.values() for p in ((a, b), (b, a)))
    ]
    found = f"{len(good)} of {len(pairs)} pairs read and write each other"
    if good:
        return Check("peer access", Status.OK, found, _PAIR)
    return Check(
        "peer access", Status.FAIL, found, _PAIR, "see nvidia-smi topo -m; check the IOMMU"
    )


def _mig(gpus: tuple[Gpu, ...]) -> Check:
    split = [gpu.index for gpu in gpus if gpu.mig == "Enabled"]
    return Check(
        name="mig",
        status=Status.FAIL if split else Status.OK,
        found=f"on for GPU {', '.join(split)}" if split else "off",
        needed_for=_PAIR,
        todo="a slice of a GPU has no peer access: use GPUs with MIG off" if split else "",
    )


def _mps(probes: Probes, gpus: tuple[Gpu, ...]) -> Check:
    exclusive = [gpu.index for gpu in gpus if gpu.compute_mode not in {"Default", "[N/A]"}]
    if probes.facts(Path("/tmp/nvidia-mps")) is not None:
        found, todo = "/tmp/nvidia-mps exists", "stop MPS: it hides whose process uses a GPU"
    elif exclusive:
        found = f"compute mode of GPU {', '.join(exclusive)} is not Default"
        todo = "isolated ranks need a context of their own: set the compute mode to Default"
    else:
        return Check("mps", Status.OK, "not seen", _PAIR)
    return Check("mps", Status.WARN, found, _PAIR, todo)


def _not_asked(why: str) -> Check:
    return Check("peer access", Status.MISSING, f"not asked: {why}", _PAIR, "see gpus")
