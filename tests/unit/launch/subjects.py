"""Trees to prepare: the reference runner copied, changed, and pinned anew."""

import re
import shutil
from pathlib import Path

import pytest

from pp4.errors import RefusedError
from pp4.launch import prepare as module
from pp4.launch.manifest import load_manifest
from pp4.launch.trees import survey

ROOT = Path(__file__).parents[3]
MANIFEST = ROOT / "launch" / "manifests" / "runner.toml"
RUNNER = "dspark_runner/runner.py"
ENGINE = "dspark_runner/engine.py"
PACKAGE = "dspark_runner/remote_dspark"
ZERO = "0" * 64


class Subject:
    """A copy of the reference runner and its manifest that a test may change.

    Args:
        place: an empty directory.
    """

    def __init__(self, place):
        self.place = place
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "launch", place / "launch", symlinks=True, ignore=ignored)
        self.source = place / "launch" / "runner"
        self.manifest = place / "launch" / "manifests" / "runner.toml"
        self.replacement = place / "launch" / "manifests" / "remote_dspark"
        self.out = place / "out"

    def write(self, path, text):
        """Put a file into the source."""
        file = self.source / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def edit(self, path, old, new):
        """Replace the only occurrence of a text in a file of the source."""
        text = (self.source / path).read_text()
        assert text.count(old) == 1, f"{text.count(old)} times {old!r}"
        (self.source / path).write_text(text.replace(old, new))

    def say(self, old, new):
        """Replace the only occurrence of a text in the manifest."""
        text = self.manifest.read_text()
        assert text.count(old) == 1, f"{text.count(old)} times {old!r}"
        self.manifest.write_text(text.replace(old, new))

    def pin(self):
        """Let the manifest name what is there now, as if it had been reviewed."""
        manifest = load_manifest(self.manifest).manifest
        tree, other = survey(self.source), survey(self.replacement)
        pins = {manifest.source.sha256: tree.sha256}
        for path, sha256 in manifest.pins:
            pins[sha256] = tree.entries[path].sha256
        for package in manifest.package:
            pins[package.sha256] = tree.part_sha256(package.path)
            pins[package.replacement_sha256] = other.sha256
        text = re.sub(r"[0-9a-f]{64}", lambda old: pins[old[0]], self.manifest.read_text())
        self.manifest.write_text(text)

    def prepare(self, out=None):
        """Prepare it."""
        return module.prepare(self.manifest, self.source, out or self.out)

    def refusal(self):
        """Prepare it, see that it refuses and that nothing is left; -> the refusal."""
        before = sorted(self.place.rglob("*"))
        with pytest.raises(RefusedError) as raised:
            self.prepare()
        assert sorted(self.place.rglob("*")) == before
        assert raised.value.refusal.left == "nothing"
        return raised.value.refusal
