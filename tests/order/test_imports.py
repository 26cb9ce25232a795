"""Who may import whom, who may print, who may read the environment: from the syntax trees."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "pp4"

# A unit is what stands right below pp4/.  Each may import itself, the bare package `pp4` (which
# imports nothing) and what is listed here, at the top of a file or deep inside a function.
_LEAF = {"errors"}
_BASE = {*_LEAF, "receipts"}
_GROUND = {*_BASE, "wire", "config", "clock"}
_MOVING = {*_GROUND, "transport"}
_HOLDING = {*_MOVING, "hold"}
# what every run inside a HOLD has; qualify and measure share it and never see each other
_RUNNING = {*_HOLDING, "run"}
_STAGES = {"doctor", "explain", "fleet", "qualify", "measure", "report", "launch"}
MAY_IMPORT = {
    "errors": set(),
    # the coordinator's side
    "receipts": _LEAF,
    "explain": _LEAF,
    "clock": _BASE,
    "config": _BASE,
    "wire": _BASE,
    "transport": _GROUND,
    "hold": _MOVING,
    "doctor": _HOLDING,
    "fleet": _HOLDING,
    "launch": _HOLDING,
    "report": _HOLDING,
    "run": _HOLDING,
    "qualify": _RUNNING,
    "measure": _RUNNING,
    "console": {*_RUNNING, *_STAGES},
    "cli": {*_RUNNING, *_STAGES, "console"},
    "__main__": {"cli"},
    # the side that runs in rank processes
    "kernels": _LEAF,
    "verifier": {*_LEAF, "kernels", "wire"},
    "drafter": {*_LEAF, "kernels"},
    "worker": {*_GROUND, "kernels", "drafter"},
    "engine": {*_GROUND, "kernels", "drafter", "worker", "verifier"},
}
GPU_SIDE = {"kernels", "verifier", "drafter", "worker", "engine"}

# Packages from outside that only some units may touch.
ONLY = {
    "typer": {"cli", "console"},
    "rich": {"console", "report"},
    "matplotlib": {"report"},
    "jinja2": {"report"},
    "markupsafe": {"report"},
    "paramiko": {"transport"},
    "torch": GPU_SIDE,
    "triton": GPU_SIDE,
    "numpy": {*GPU_SIDE, "measure"},
    "safetensors": GPU_SIDE,
    "tomllib": {"config"},
    "pynvml": {"worker"},
    "prometheus_client": {"worker"},
}
TALKERS = {"cli", "console", "__main__"}


@dataclass(frozen=True)
class Violation:
    """A rule that a line breaks."""

    place: str
    rule: str

    def __str__(self) -> str:
        return f"{self.place}: {self.rule}"


def violations(source: str, path: Path) -> list[Violation]:
    """Return what the text of a file breaks.

    Args:
        source: Python text.
        path: where it lies, relative to the directory that holds ``pp4``.
    """
    module = path.with_suffix("").parts
    unit = module[1] if len(module) > 1 else "__init__"
    found = []
    tree = ast.parse(source, str(path))
    as_program = _run_as_program(tree)
    for node in ast.walk(tree):
        rules = [*_import_rules(node, module, unit), *_speech_rules(node, module, unit)]
        if node in as_program:
            rules = [rule for rule in rules if rule != "exits"]
        found += [Violation(f"{path}:{getattr(node, 'lineno', 0)}", rule) for rule in rules]
    return found


def _run_as_program(tree: ast.Module) -> set[ast.AST]:
    """Return what stands under the guard that makes a file a program; there it may exit."""
    guards = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"
    ]
    return {inner for guard in guards for part in guard.body for inner in ast.walk(part)}


def _imported(node: ast.AST, module: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the dotted names that a statement imports, relative ones made absolute."""
    if isinstance(node, ast.Import):
        yield from (tuple(name.name.split(".")) for name in node.names)
    elif isinstance(node, ast.ImportFrom):
        # Level 1 is the package of this file: for pp4/a/__init__.py that is pp4.a itself.
        start = module[: len(module) - node.level] if node.level else ()
        base = (*start, *(node.module.split(".") if node.module else ()))
        yield from ((*base, name.name) for name in node.names)


def _import_rules(node: ast.AST, module: tuple[str, ...], unit: str) -> Iterator[str]:
    for name in _imported(node, module):
        top = name[0]
        if top in ONLY and unit not in ONLY[top]:
            yield f"{unit} imports {top}"
        if top != "pp4" or len(name) < 2:
            continue
        target = name[1]
        if not _is_unit(target):
            continue  # a name of the bare package, such as the version
        if unit == "__init__":
            yield f"the bare package imports {target}"
        elif unit not in MAY_IMPORT:
            yield f"{unit} has no row in the table"
        elif target != unit and target not in MAY_IMPORT[unit]:
            yield f"{unit} imports pp4.{target}"


def _is_unit(name: str) -> bool:
    return name in MAY_IMPORT or (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def _speech_rules(node: ast.AST, module: tuple[str, ...], unit: str) -> Iterator[str]:
    talks = unit in TALKERS or module[-1] == "__main__"
    called = _dotted(node.func) if isinstance(node, ast.Call) else ""
    if called == "print" and not talks:
        yield "prints"
    if called in {"sys.exit", "exit", "quit"} and not talks:
        yield "exits"
    if isinstance(node, ast.Raise) and node.exc is not None and not talks:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if _dotted(raised) == "SystemExit":
            yield "exits"
    from_sys = isinstance(node, ast.ImportFrom) and node.module == "sys"
    if from_sys and any(name.name == "exit" for name in node.names) and not talks:
        yield "exits"
    if called in {"__import__", "import_module", "importlib.import_module"} and unit != "cli":
        yield "imports by a computed name"
    if unit != "config":
        if _dotted(node) in {"os.environ", "os.environb", "os.getenv", "os.putenv"}:
            yield "touches the environment"
        from_os = isinstance(node, ast.ImportFrom) and node.module == "os"
        if from_os and any(name.name in {"environ", "getenv"} for name in node.names):
            yield "touches the environment"


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return ""


FILES = sorted(PACKAGE.rglob("*.py"))


def test_the_package_keeps_every_rule():
    found = [
        str(violation)
        for file in FILES
        for violation in violations(file.read_text("utf-8"), file.relative_to(PACKAGE.parent))
    ]
    assert FILES
    assert found == []


def test_every_unit_has_a_row():
    units = {file.relative_to(PACKAGE).parts[0].removesuffix(".py") for file in FILES}
    assert units - {"__init__"} <= set(MAY_IMPORT)


def test_the_table_has_no_cycle_and_no_way_from_the_coordinator_to_the_kernels():
    def reach(unit, seen=frozenset()):
        assert unit not in seen, f"{unit} reaches itself"
        below = MAY_IMPORT[unit]
        return below | {far for near in below for far in reach(near, seen | {unit})}

    for unit in MAY_IMPORT:
        reached = reach(unit)
        if unit not in GPU_SIDE:
            assert not reached & GPU_SIDE, unit


PLANTED = {
    "receipts sees the clock": ("receipts/a.py", "import pp4.clock", "receipts imports pp4.clock"),
    "inside a function": (
        "qualify/a.py",
        "def f():\n    from pp4.kernels import x",
        "qualify imports pp4.kernels",
    ),
    "from the bare package": (
        "kernels/a.py",
        "from pp4 import wire",
        "kernels imports pp4.wire",
    ),
    "relative, from a package": (
        "hold/__init__.py",
        "from ..qualify import plan",
        "hold imports pp4.qualify",
    ),
    "relative, from a module": (
        "transport/a.py",
        "from ..hold import lease",
        "transport imports pp4.hold",
    ),
    "for type checkers only": (
        "worker/a.py",
        "if TYPE_CHECKING:\n    from pp4.hold import lease",
        "worker imports pp4.hold",
    ),
    "qualify sees measure": (
        "qualify/a.py",
        "import pp4.measure.arm",
        "qualify imports pp4.measure",
    ),
    "measure sees qualify": (
        "measure/a.py",
        "import pp4.qualify as q",
        "measure imports pp4.qualify",
    ),
    "what runs share sees a run": (
        "run/a.py",
        "from pp4.qualify import gates",
        "run imports pp4.qualify",
    ),
    "holding sees what runs share": (
        "hold/a.py",
        "from pp4.run.asking import Asker",
        "hold imports pp4.run",
    ),
    "worker sees the command line": (
        "worker/a.py",
        "from pp4.cli import main",
        "worker imports pp4.cli",
    ),
    "a unit nobody knows": (
        "novel/a.py",
        "from pp4.errors import Code",
        "novel has no row in the table",
    ),
    "the bare package": (
        "__init__.py",
        "from pp4.errors import Code",
        "the bare package imports errors",
    ),
    "torch in a gate": ("qualify/a.py", "import torch.cuda", "qualify imports torch"),
    "triton in the command": ("cli.py", "def f():\n    import triton", "cli imports triton"),
    "paramiko in receipts": (
        "receipts/a.py",
        "from paramiko import Client",
        "receipts imports paramiko",
    ),
    "numpy beside the statistics": ("report/a.py", "import numpy", "report imports numpy"),
    "typer in a gate": ("qualify/a.py", "import typer", "qualify imports typer"),
    "rich in the doctor": ("doctor/a.py", "import rich.table", "doctor imports rich"),
    "TOML outside config": ("launch/a.py", "import tomllib", "launch imports tomllib"),
    "print": ("qualify/a.py", "print('x')", "prints"),
    "sys.exit": ("qualify/a.py", "import sys\nsys.exit(1)", "exits"),
    "exit by name": ("worker/a.py", "from sys import exit", "exits"),
    "SystemExit": ("worker/a.py", "raise SystemExit(1)", "exits"),
    "exit beside the guard": (
        "worker/a.py",
        "if __name__ == '__main__':\n    print(1)\nelse:\n    raise SystemExit",
        "exits",
    ),
    "print under the guard": (
        "worker/a.py",
        "if __name__ == '__main__':\n    print(1)",
        "prints",
    ),
    "bare SystemExit": ("worker/a.py", "raise SystemExit", "exits"),
    "quit": ("hold/a.py", "quit()", "exits"),
    "computed import": ("hold/a.py", "__import__('torch')", "imports by a computed name"),
    "importlib": (
        "hold/a.py",
        "importlib.import_module('torch')",
        "imports by a computed name",
    ),
    "environ": ("kernels/a.py", "x = os.environ['A']", "touches the environment"),
    "getenv": ("hold/a.py", "x = os.getenv('A')", "touches the environment"),
    "environ by name": ("hold/a.py", "from os import environ", "touches the environment"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_found(name):
    path, source, rule = PLANTED[name]
    assert rule in [found.rule for found in violations(source, Path("pp4", path))]


ALLOWED = {
    "the version": ("receipts/a.py", "from pp4 import __version__"),
    "its own unit": ("receipts/a.py", "from .canonical import parse"),
    "its own package": ("receipts/__init__.py", "from .canonical import parse"),
    "a lower layer": ("qualify/a.py", "from pp4.transport.local import Local"),
    "torch in a kernel": ("kernels/a.py", "import torch"),
    "a main module exits": ("worker/__main__.py", "import sys\nsys.exit(0)"),
    "a file run as a program exits": (
        "kernels/a.py",
        "if __name__ == '__main__':\n    raise SystemExit(main())",
    ),
    "the console prints": ("console/a.py", "print('x')"),
    "a metadata look-up": ("doctor/a.py", "from importlib import metadata"),
    "config reads": ("config.py", "import os, tomllib\nos.environ.get('A')"),
    "a method called exit": ("qualify/a.py", "outcome.exit()"),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed_is_not_flagged(name):
    path, source = ALLOWED[name]
    assert violations(source, Path("pp4", path)) == []
