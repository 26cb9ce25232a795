"""The receipt of a preparation, and a tree held against one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pp4.errors import Code, Refusal, UsageError
from pp4.launch.guards import Guard
from pp4.launch.manifest import Edit, Opened, Package
from pp4.launch.trees import Tree, survey
from pp4.receipts.canonical import shown
from pp4.receipts.checks import Check, from_error, require
from pp4.receipts.records import Preparation
from pp4.receipts.report import Report

RECEIPT: Final = "verifier-k1-receipt.json"
"""Its name at the top of a staged tree; the one file there that it does not list."""
_LIMITS: Final = (
    "that the tree was run, or runs",
    "who reviewed the pinned input: that is the word of whoever wrote the manifest",
    "what programs do at run time: guards and switches were found by reading",
    "empty directories, __pycache__ and .git, which neither list has",
)
_SHOWN: Final = 3


def body(
    opened: Opened,
    source: Tree,
    output: Tree,
    lines: Mapping[str, int],
    guards: Sequence[tuple[Guard, Guard]],
) -> dict[str, object]:
    """Return the members of the receipt; no time and no machine is among them.

    Args:
        opened: the manifest.
        source: the reviewed tree.
        output: the staged one.
        lines: of each edit's passage in the source, by the edit's name.
        guards: each as it was before and after.
    """
    manifest = opened.manifest
    return {
        "kind": "preparation",
        "made_at": None,
        "limits": list(_LIMITS),
        "verdict": "prepared",
        "manifest_sha256": opened.sha256,
        "reviewed_runner_sha256": manifest.runner.sha256,
        "inputs": _rows(source),
        "outputs": _rows(output),
        "inputs_sha256": source.sha256,
        "outputs_sha256": output.sha256,
        "replacements": [
            *(_package(one) for one in manifest.package),
            *(_edit(one, output, lines[one.name]) for one in manifest.edit),
        ],
        "guards": [
            {
                "name": before.name,
                "path": before.path,
                "line_before": before.line,
                "line_after": after.line,
            }
            for before, after in guards
        ],
    }


def _rows(tree: Tree) -> list[dict[str, str]]:
    return [
        {"path": one.path, "type": one.type, "sha256": one.sha256} for one in tree.entries.values()
    ]


def _package(package: Package) -> dict[str, object]:
    return {
        "what": f"package {package.name}",
        "path": package.path,
        "line": None,
        "matches": 1,
        "before_sha256": package.sha256,
        "after_sha256": package.replacement_sha256,
    }


def _edit(edit: Edit, output: Tree, line: int) -> dict[str, object]:
    return {
        "what": f"passage {edit.name}",
        "path": edit.path,
        "line": line,
        "matches": 1,
        "before_sha256": edit.sha256,
        "after_sha256": output.entries[edit.path].sha256,
    }


def tree_checks(report: Report, root: Path) -> tuple[Check, ...]:
    """Hold a tree against the outputs of the one preparation among the files of a report.

    Raises:
        UsageError: there is none among them, or more than one.
    """
    receipts = [one.receipt for one in report.files if isinstance(one.receipt, Preparation)]
    if len(receipts) != 1:
        expected = "one receipt of kind preparation, which --tree is held against"
        refusal = Refusal(Code.USAGE, "verify-receipt --tree", expected, f"{len(receipts)}")
        raise UsageError(refusal)
    try:
        tree = survey(root, without=(RECEIPT,))
    except Exception as error:
        return (from_error("tree", error),)
    wanted = {one.path: (one.type, one.sha256) for one in receipts[0].outputs}
    found = {path: (one.type, one.sha256) for path, one in tree.entries.items()}
    odd = [f"{path} is missing" for path in sorted(wanted.keys() - found.keys())]
    odd += [f"{path} is not in it" for path in sorted(found.keys() - wanted.keys())]
    both = sorted(wanted.keys() & found.keys())
    odd += [f"{path} is another one" for path in both if wanted[path] != found[path]]
    left_out = f", {len(tree.left_out)} left out" if tree.left_out else ""
    equal = f"{len(found)} files, all as in the receipt{left_out}"
    more = f" (and {len(odd) - _SHOWN} more)" if len(odd) > _SHOWN else ""
    differs = f"{'; '.join(shown(one, 100) for one in odd[:_SHOWN])}{more}"
    expected = "the files of the receipt, no more and no fewer"
    return (require("tree", Code.DIGEST_MISMATCH, not odd, expected, differs if odd else equal),)
