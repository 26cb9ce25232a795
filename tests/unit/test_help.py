"""What ``--help`` says: complete, true as far as a parser can tell, and tidy at 80 characters."""

import re
from pathlib import Path

import pytest

from pp4 import cli
from pp4.cli.help import HELP, LINES, SECTIONS, commands
from pp4.cli.help.page import SHORT, WIDTH
from pp4.errors import Exit
from tests.lines import joined, wrong_with, wrong_with_mention

ROOT = Path(__file__).parents[2]
COMMANDS = [path for path, _ in commands(cli.app)]
GROUPS = sorted({" ".join(path.split()[:n]) for path in COMMANDS for n in range(len(path.split()))})
TOP = {path.split()[0] for path in COMMANDS}
SHELL = ("for ", "srun ")
"""Lines of examples that belong to a scheduler."""


def told(capsys, path):
    """What ``pp4 PATH --help`` prints on a terminal of 80 columns."""
    assert cli.main([*path.split(), "--help"]) == Exit.DONE
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.fixture(autouse=True)
def _columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_an_entry(path):
    assert path in HELP, (
        f"pp4 {path} has no help: write down in pp4/cli/help what it needs, what it leaves, two or "
        "three examples, its exit codes and what to read next"
    )


@pytest.mark.parametrize("name", sorted(TOP))
def test_every_command_stands_once_on_the_path_of_a_user(name):
    rows = [row for _, rows in SECTIONS for row in rows]
    assert name in rows, f"pp4 {name} stands in no section of pp4.cli.help.SECTIONS"
    assert rows.count(name) == 1


def test_no_entry_is_about_a_command_that_is_not_there():
    assert set(HELP) <= set(COMMANDS)
    assert {row.split()[0] for _, rows in SECTIONS for row in rows} <= TOP
    assert set(LINES) <= {row for _, rows in SECTIONS for row in rows}


def test_the_sections_are_those_of_the_path_in_its_order(capsys):
    out = told(capsys, "")
    heads = re.findall(r"^(\w+).*:$", out, re.MULTILINE)
    assert heads == ["Options", "Rehearse", "Qualify", "Measure", "Verify", "Operate"]
    rows = re.findall(r"^  ([a-z][\w-]*(?: --[\w-]+)?)  ", out, re.MULTILINE)
    assert rows == [row for _, rows in SECTIONS for row in rows]


def test_a_command_that_nobody_has_placed_is_listed_all_the_same(capsys, monkeypatch):
    left = tuple((title, tuple(row for row in rows if row != "gate")) for title, rows in SECTIONS)
    monkeypatch.setattr("pp4.cli.help.SECTIONS", left)
    out = told(capsys, "")
    assert re.search(r"^More:\n  gate +\w", out, re.MULTILINE)


@pytest.mark.parametrize("path", [*GROUPS, *COMMANDS])
def test_help_is_tidy(capsys, path):
    out = told(capsys, path)
    assert max(map(len, out.splitlines())) <= 80
    assert not re.search(r"[a-z,]\.\.\.$", out, re.MULTILINE), "a line of a list was cut off"
    assert "\x08" not in out


@pytest.mark.parametrize("path", HELP)
class TestEntry:
    def test_it_says_what_is_needed_and_left(self, capsys, path):
        said, out = HELP[path], told(capsys, path)
        for text in (said.needs, said.leaves):
            assert text.endswith(".")
            assert text[0].islower()
        assert len(said.short) <= SHORT
        for title in ("Needs: ", "Leaves: ", "Examples:", "Exit codes:", "See also: "):
            assert out.count(f"\n  {title}") == 1

    def test_its_examples_are_lines_that_can_be_typed(self, path):
        said = HELP[path]
        assert 2 <= len(said.examples) <= 4
        own = [line for example in said.examples for line in joined(example)]
        assert [line for line in own if f"pp4 {path.removesuffix(' run')} " in f"{line} "]
        for line in own:
            assert line.startswith(SHELL) or wrong_with(line) == ""

    def test_its_examples_stand_there_as_they_are(self, capsys, path):
        out = told(capsys, path)
        for line in HELP[path].lines:
            assert len(line) <= WIDTH
            assert f"\n    {line}\n" in out

    def test_files_of_the_project_that_it_names_are_there(self, path):
        said = HELP[path]
        text = " ".join([*said.examples, *said.see, said.needs, said.leaves])
        named = re.findall(r"(?<![\w/])(?:docs|examples|launch|receipts)/[\w./*-]*\w", text)
        assert not [name for name in named if not list(ROOT.glob(name))]

    def test_its_exit_codes_are_listed_with_a_meaning(self, capsys, path):
        out = told(capsys, path)
        listed = re.search(r"Exit codes:\n((?:    .*\n)+)", out).group(1)
        rows = [line.split(maxsplit=1) for line in listed.splitlines()]
        codes = [int(code) for code, _ in rows]
        assert codes == sorted(codes)
        some = {Exit.INCONCLUSIVE, Exit.TIMEOUT, Exit.UNCLEAN}
        assert set(codes) == (set(Exit) - some) | HELP[path].exits.keys()

    def test_what_to_read_next_is_there(self, path):
        for name in HELP[path].see:
            if name.startswith("pp4 "):
                mention = re.sub(r" (--tree)$", r" \1 DIR FILE", name.replace("CODE", "LEAK"))
                assert wrong_with_mention(mention) == ""
            else:
                assert (ROOT / name).is_file()
