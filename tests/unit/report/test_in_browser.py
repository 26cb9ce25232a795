"""The page in a real browser: complete offline, nothing cut or overlapping, enough contrast."""

import os
import re
from pathlib import Path

import pytest

from pp4 import report
from pp4.report.page import page
from pp4.report.palette import LIGHT, variables
from tests.unit.report.browser import CHROMIUM, chromium
from tests.unit.report.documents import of_bytes
from tests.unit.report.gallery import gallery
from tests.unit.report.hostile import HOSTILE
from tests.unit.report.measured import made

pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"), reason="chromium is not installed"
)
LOOKING = (Path(__file__).parent / "looking.js").read_text()
TALL = 20_000


@pytest.fixture(scope="module")
def browser():
    with chromium() as one:
        yield one


def look(browser, path, width, *, dark=False):
    browser.open(path, width, height=TALL, dark=dark)
    return browser.value(LOOKING)


def test_the_page_is_complete_without_scripts_and_without_a_network(browser, page_file):
    browser.open(page_file, 1000, scripts=False)
    assert browser.requests == [page_file.resolve().as_uri()]
    assert browser.said == []
    assert "FASTER" in browser.value("document.querySelector('h1').innerText")
    assert "ON gives 4.8" in browser.value("document.querySelector('h1').innerText")


@pytest.mark.parametrize("width", [380, 800, 1400])
def test_nothing_is_cut_and_no_texts_overlap(browser, page_file, width):
    found = look(browser, page_file, width)
    assert found["told"] == []
    assert found["figures"] > 15
    assert found["measured"] > 300


def test_the_dark_page_can_be_read_as_well(browser, page_file):
    found = look(browser, page_file, 1000, dark=True)
    assert found["told"] == []
    dark = browser.value("getComputedStyle(document.body).backgroundColor")
    browser.open(page_file, 1000)
    assert browser.value("getComputedStyle(document.body).backgroundColor") != dark


@pytest.mark.parametrize("width", [380, 1400])
def test_long_and_hostile_names_stay_where_they_belong(browser, hostile_page, width):
    path = hostile_page
    found = look(browser, path, width)
    assert found["told"] == []
    assert browser.requests == [path.resolve().as_uri()]
    assert browser.value("document.scripts.length + document.images.length") == 0
    assert browser.value("window.hurt === undefined")
    assert HOSTILE.split("<")[0] in browser.value("document.body.innerText")


def test_receipts_without_a_comparison_are_laid_out_as_well(browser, tmp_path):
    files = made().files
    for name in ("qualification-1", "budget", "whole_worker"):
        path = tmp_path / f"{name}.html"
        path.write_bytes(page(of_bytes(tmp_path, **{name: files[name]})))
        assert look(browser, path, 800)["told"] == [], name


@pytest.fixture(scope="module")
def gallery_page(tmp_path_factory):
    path = tmp_path_factory.mktemp("gallery") / "gallery.html"
    css = (Path(report.__file__).parent / "templates" / "page.css").read_text()
    figures = [
        f"<figure><figcaption>{name}</figcaption><div class='drawing "
        f"{'by-width' if one.narrow else ''}'><div class=broad>{one.svg}</div>"
        f"<div class=slim>{one.narrow or ''}</div></div></figure>"
        for name, one in gallery()
    ]
    head = f"<!doctype html><style>:root {{{variables(LIGHT)}}} {css}</style>"
    path.write_text(f"{head}<main>{''.join(figures)}</main>")
    return path


@pytest.mark.parametrize("width", [380, 960])
def test_figures_of_extreme_numbers_stay_readable(browser, gallery_page, width):
    assert look(browser, gallery_page, width)["told"] == []


def test_it_prints_on_a_sensible_number_of_pages(browser, page_file):
    browser.open(page_file, 1000, dark=True)
    pages = len(re.findall(rb"/Type\s*/Page\b(?!s)", browser.pdf()))
    assert 8 <= pages <= 18


BROKEN = {
    "texts overlap": "<svg role=img aria-label=a width=200 height=60><text x=10 y=20>one</text>"
    "<text x=14 y=22>two</text></svg>",
    "text leaves its figure": "<svg role=img aria-label=a width=40 height=40>"
    "<text x=30 y=20>much too long</text></svg>",
    "too little contrast": "<p style='color:#999'>grey on white</p>",
    "is wider than its box": "<p style='width:40px;white-space:nowrap'>wider than its box</p>",
    "leaves the page": "<p style='position:absolute;left:390px'>beyond the edge</p>",
}


@pytest.mark.parametrize("fault", BROKEN)
def test_the_measuring_finds_what_it_is_there_for(browser, tmp_path, fault):
    path = tmp_path / "broken.html"
    path.write_text(f"<!doctype html><body style='background:#fff'>{BROKEN[fault]}")
    assert any(one.startswith(fault) for one in look(browser, path, 380)["told"])
