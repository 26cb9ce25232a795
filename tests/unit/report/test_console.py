"""The report in a terminal: verdict first, 80 columns, nothing told by colour alone."""

import io
import json
import re

import pytest

from pp4 import cli
from pp4.console import Console, reports
from pp4.errors import Exit
from pp4.report.page import page
from tests.unit.receipts.samples import KINDS, sample
from tests.unit.report.documents import of_bytes
from tests.unit.report.hostile import hostile_half


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(document, monkeypatch, *, terminal, color=True):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    Console(color=color).drawn(document, None)
    return stream.getvalue()


def bare(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_verdict_comes_first_and_80_columns_are_enough(whole, monkeypatch, terminal):
    text = shown(whole, monkeypatch, terminal=terminal)
    lines = bare(text).splitlines()
    assert lines[0] == "FASTER: ON gives 4.8 % more tokens per second than OFF."
    assert lines[1].startswith("  +4.8 %, 95 % interval +4.6 % to +5.0 %, drift")
    assert max(map(len, lines)) <= 80
    assert "1,653" in text
    assert "allowance" in text
    assert "  - a common runtime at fixed depth 5, not a production server" in text


def test_no_colour_is_needed_to_read_it(whole, monkeypatch):
    coloured = shown(whole, monkeypatch, terminal=True)
    plain = shown(whole, monkeypatch, terminal=True, color=False)
    assert bare(plain) == bare(coloured)
    assert re.findall(r"\x1b\[[0-9;]*3[0-7][0-9;]*m", plain) == []


def test_numbers_end_at_one_edge(whole, monkeypatch):
    lines = shown(whole, monkeypatch, terminal=False).splitlines()
    at = lines.index("tokens per second")
    rows = lines[at + 1 : at + 11]
    edge = rows[0].index("OFF tok/s") + len("OFF tok/s")
    assert [row[edge - 1].isalnum() and row[edge] == " " for row in rows] == [True] * 10


def test_a_terminal_is_not_told_what_to_do_by_a_name(tmp_path, monkeypatch):
    text = shown(of_bytes(tmp_path, half=hostile_half()), monkeypatch, terminal=False)
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_view(tmp_path, monkeypatch, kind):
    text = shown(of_bytes(tmp_path, one=sample(kind)), monkeypatch, terminal=False)
    assert kind in text or "NO VERDICT" in text
    assert "  - nothing but an example" in text


def test_a_gate_that_does_not_hold_names_the_arm(tmp_path):
    from pp4.receipts.build import build
    from tests.unit.receipts.samples import body, with_journal

    made = body("qualification")
    made["verdict"] = "wrong"
    made["gates"][2]["arms"][0]["found"] = "failed(OUTPUT_MISMATCH)"
    document = of_bytes(tmp_path, one=build(with_journal(made)))
    lines = [part for part in reports.told(document) if isinstance(part, str)]
    name = made["gates"][2]["arms"][0]["arm"]
    assert f"  gate 2, {name}: expected pass, found failed(OUTPUT_MISMATCH)" in lines
    (table,) = [part for part in reports.told(document) if not isinstance(part, str)]
    verdicts = [row[2] for row in table.rows]
    assert verdicts == ["holds", "holds", "DOES NOT HOLD", *["holds"] * (len(verdicts) - 3)]
    assert page(document).decode().count("DOES NOT HOLD") == 1


def run(capsys, *arguments):
    code = cli.main([str(one) for one in arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


def test_json_is_one_document_and_names_the_page(chain, capsys, tmp_path):
    page = tmp_path / "page.html"
    code, out, err = run(capsys, "report", chain["budget"], "--json", "--html", page)
    assert (code, err) == (Exit.DONE, "")
    assert json.loads(out)["html"] == str(page)
    assert page.read_bytes().startswith(b"<!doctype html>")


def test_a_page_is_never_written_over(chain, capsys, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")
    code, _, err = run(capsys, "report", chain["budget"], "--html", page)
    assert code == Exit.REFUSED
    assert "EXISTS" in err
    assert page.read_text() == "mine"


def test_without_its_packages_the_page_is_refused_and_the_table_still_works(
    chain, capsys, tmp_path, monkeypatch
):
    from pp4.report import packages

    found = packages.find_spec
    monkeypatch.setattr(
        packages, "find_spec", lambda name: None if name == "jinja2" else found(name)
    )
    page = tmp_path / "page.html"
    code, _, err = run(capsys, "report", chain["budget"], "--html", page)
    assert code == Exit.REFUSED
    assert "MISSING_PACKAGE" in err
    assert "pip install 'pp4[report]'" in err
    assert not page.exists()
    code, out, _ = run(capsys, "report", chain["budget"])
    assert code == Exit.DONE
    assert out.lstrip().startswith("fits: budget")
