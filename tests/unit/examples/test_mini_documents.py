"""Held-out documents as token ids: which files, which tokens, and what is refused."""

import json

import pytest

from examples.mini import text, tokenization
from examples.mini.documents import HERE, main


@pytest.fixture
def files(tmp_path):
    """A directory of Python files, some of each split; -> it and the texts by path."""
    place, texts = tmp_path / "text", {}
    place.mkdir()
    for number in range(120):
        texts[f"m{number:03}.py"] = f"def f{number}(x):\n    return x + {number}\n"
    for name, content in texts.items():
        (place / name).write_text(content)
    return place, texts


@pytest.mark.parametrize("every", [False, True])
def test_a_document_is_a_file(files, tmp_path, every):
    place, texts = files
    out = tmp_path / "documents.json"
    words = ["--text", str(place), "--out", str(out), *(["--every"] if every else [])]
    assert main(words) == 0
    chosen = [name for name in sorted(texts) if every or text.split_of(name) == "heldout"]
    assert 0 < len(chosen) <= len(texts)
    tokenizer = tokenization.read(HERE / "target" / tokenization.TOKENIZER)
    found = json.loads(out.read_text())
    # the end token before each, and the text itself behind it
    assert {document[0] for document in found} == {0}
    assert [tokenizer.decode(document[1:]) for document in found] == [
        texts[name] for name in chosen
    ]


def test_what_is_there_stays(files, tmp_path, capsys):
    out = tmp_path / "documents.json"
    out.write_text("mine")
    assert main(["--text", str(files[0]), "--out", str(out)]) == 3
    assert out.read_text() == "mine"
    assert "EXISTS" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_told(files, tmp_path, capsys):
    out = tmp_path / "none" / "documents.json"
    assert main(["--text", str(files[0]), "--out", str(out)]) == 3
    assert "UNWRITABLE" in capsys.readouterr().err


def test_a_tokenizer_that_is_none_is_told(files, tmp_path, capsys):
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{}")
    words = ["--text", str(files[0]), "--out", str(tmp_path / "o"), "--tokenizer", str(broken)]
    assert main(words) == 3
    assert "UNREADABLE" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
