"""The reader of command lines that the tests of pages and refusals rely on can say no."""

import pytest

from tests.lines import commands, joined, wrong_with, wrong_with_mention

RIGHT = [
    "pp4 doctor",
    "pp4 --help",
    "pp4 --version",
    "pp4 hold --help",
    "pp4 explain LEAK",
    "pp4 replay heldout.safetensors",
    "pp4 replay make-heldout --target a --drafter b --tokens c --out d",
    "pp4 hold close ID --fence NUMBER --hold FILE",
    "sudo env PP4_HOST_DIR=/x pp4 host init",
    "DSPARK_SAMPLED_TOP32=1 pp4 worker serve DIR --log text &",
    "pip install 'pp4[gpu]'",
]
WRONG = {
    "pp4 dcotor": "No such command",
    "pp4 hold": "command",
    "pp4 hold forget ID": "No such command",
    "pp4 doctor --frobnicate": "No such option",
    "pp4 hold close ID --fence many --hold FILE": "many",
    "pp4 hold clear GPU": "--operator",
    "pp4 explain NO_CODE": "no code",
    "pp4 doctor; pp4 nonsense": "No such command",
    "frobnicate now": "no program",
    "pp4 'doctor": "quotation",
    "PP4_DEBUG=1": "no command",
}


@pytest.mark.parametrize("line", RIGHT)
def test_a_line_that_exists_is_taken(line, capsys):
    assert wrong_with(line) == ""
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("line", WRONG)
def test_a_line_that_does_not_exist_is_caught(line):
    assert WRONG[line] in wrong_with(line)


def test_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert wrong_with("pp4 hold new hold.toml") == ""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert wrong_with("pp4 --install-completion") == ""
    assert wrong_with("pp4 --show-completion") == ""
    assert list(tmp_path.iterdir()) == []


def test_lines_that_go_on_are_one():
    assert joined("a \\\n  b\n\nc\n") == ["a    b", "c"]
    assert commands("A=1 a | b 'x y' && c # d") == [["a"], ["b", "x y"], ["c"]]


def test_a_sentence_may_name_a_command_without_its_arguments():
    assert wrong_with("pp4 hold clear")
    assert wrong_with_mention("pp4 hold clear") == ""
    assert wrong_with_mention("pp4 hold forget")
    assert wrong_with_mention("pp4 hold clear GPU")
