"""Prompts of the mini pair: windows of held-out files, and the file that is shipped."""

import json
from pathlib import Path

import pytest

from examples.mini import prompts, text
from examples.mini.documents import HERE
from examples.mini.sizes import MINI
from pp4.engine.measured.prompts import read_prompts
from pp4.errors import BadInputError, Code, RefusedError

SHIPPED = HERE / "prompts.jsonl"
PACKAGE = Path("/usr/lib/python3.11")
"""Where Debian 12 has the text that the pair was trained on."""


def test_windows_are_taken_at_equal_distances():
    found = [list(range(10)), list(range(100, 107)), [7, 8]]
    # three of the first document, two of the second, none of the third
    every = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [100, 101, 102], [103, 104, 105]]
    assert prompts.windows(found, 5, 3) == every
    assert prompts.windows(found, 2, 3) == [every[0], every[2]]


def test_no_two_windows_are_equal():
    assert prompts.windows([[1, 2, 1, 2, 3, 4]], 2, 2) == [[1, 2], [3, 4]]
    with pytest.raises(BadInputError, match="3 windows of 2 tokens, found 2"):
        prompts.windows([[1, 2, 1, 2, 3, 4]], 3, 2)


def test_what_is_shipped_fits_the_pair():
    found = read_prompts(SHIPPED)
    assert len(set(found.tokens)) == prompts.COUNT == 64
    assert {len(one) for one in found.tokens} == {prompts.LENGTH} == {96}
    # the last token is the drafter's mask, which no text has
    assert all(0 <= token < MINI.target.vocab - 1 for one in found.tokens for token in one)
    assert found.sha256 in (HERE / "README.md").read_text()


@pytest.mark.skipif(not PACKAGE.is_dir(), reason="the text is that of Debian 12's python3.11")
def test_the_same_text_gives_what_is_shipped(tmp_path):
    sources, _ = text.read(PACKAGE)
    here = text.digest(text.dealt(sources)["heldout"])
    trained = json.loads((HERE / "record.json").read_text())["text"]["heldout"]["sha256"]
    if here != trained:
        pytest.skip("another version of the text")
    assert prompts.main(["--text", str(PACKAGE), "--out", str(tmp_path / "p")]) == 0
    assert (tmp_path / "p").read_bytes() == SHIPPED.read_bytes()


def test_what_is_there_stays(tmp_path):
    out = tmp_path / "p"
    out.write_text("mine")
    for place, code in ((out, Code.EXISTS), (tmp_path / "none" / "p", Code.UNWRITABLE)):
        with pytest.raises(RefusedError) as caught:
            prompts.write(place, [[1, 2]])
        assert caught.value.refusal.code is code
    assert out.read_text() == "mine"


def test_text_without_files_is_told(tmp_path, capsys):
    words = ["--text", str(tmp_path), "--out", str(tmp_path / "p")]
    assert prompts.main(words) == 3
    assert json.loads(capsys.readouterr().err)["refusal"]["code"] == "UNREADABLE"
    assert not (tmp_path / "p").exists()
