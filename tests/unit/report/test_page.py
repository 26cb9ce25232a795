"""The page as text: equal bytes, nothing of a stranger's becomes markup, nothing from elsewhere."""

import re
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure

from pp4.receipts.build import build
from pp4.report.page import page
from pp4.report.palette import DARK, LIGHT, OFF, ON, STAND_INS
from pp4.report.plots.sheet import Size, drawn, panel
from tests.unit.receipts.samples import KINDS, body, sample
from tests.unit.report.documents import of_bytes, of_files
from tests.unit.report.hostile import HOSTILE


class Seen(HTMLParser):
    """Tags with their attributes, and all text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def text(page_file):
    return page_file.read_text()


def test_equal_receipts_give_equal_bytes(tmp_path):
    files = {kind: sample(kind) for kind in ("measurement", "qualification", "budget")}
    first, second = (page(of_bytes(tmp_path, **files)) for _ in range(2))
    assert first == second


def test_a_matplotlibrc_of_the_persons_changes_nothing(chain):
    import matplotlib

    one = of_files([chain["budget"]])
    plain = page(one)
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True, "svg.fonttype": "path"}):
        assert page(one) == plain
        assert matplotlib.rcParams["font.size"] == 30


def test_there_is_no_script_and_nothing_from_elsewhere(text):
    seen = Seen(text)
    assert {tag for tag, _ in seen.tags} & {"script", "link", "img", "iframe", "object"} == set()
    for _, attributes in seen.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("href", "src", "xlink:href"):
                assert value.startswith("#")
    assert re.findall(r"https?:|//[a-z]|@import|url\((?!#)", text) == []
    assert "default-src 'none'" in text


def test_every_name_in_the_page_is_there_once_and_every_reference_has_one(text):
    seen = Seen(text)
    names = [attributes["id"] for _, attributes in seen.tags if "id" in attributes]
    assert len(names) == len(set(names))
    wanted = {value[1:] for _, a in seen.tags for name, value in a.items() if name == "href"}
    wanted |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert wanted <= set(names)


def test_two_comparisons_share_a_page_and_no_name(tmp_path):
    other = body("measurement")
    other["limits"] = ["another one"]
    text = page(of_bytes(tmp_path, one=sample("measurement"), two=build(other))).decode()
    names = [attributes["id"] for _, attributes in Seen(text).tags if "id" in attributes]
    assert len(names) == len(set(names))
    assert text.count("<h1>") == 2


def test_every_figure_says_what_it_shows(text):
    figures = [attributes for tag, attributes in Seen(text).tags if tag == "svg"]
    assert len(figures) > 20
    for attributes in figures:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"]) > 20
    first = next(one["aria-label"] for one in figures if "95 % interval" in one["aria-label"])
    assert "+4.8 %" in first


def test_every_section_is_there(text):
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert headings == [
        "Tokens per second",
        "Drift",
        "Acceptance by position",
        "Draft latency",
        "Memory and failed rounds",
        "Clocks, power, temperature",
        "The HOLDs",
        "Gates of the first HOLD",
        "Gates of the second HOLD",
        "Solo qualification",
        "Budget of a window",
        "Whole worker",
        "What is not established",
        "Chain of evidence",
    ]


def test_nothing_of_a_stranger_becomes_markup_or_a_template(hostile_page):
    text = hostile_page.read_text()
    seen = Seen(text)
    assert "script" not in {tag for tag, _ in seen.tags}
    assert "img" not in {tag for tag, _ in seen.tags}
    assert "<script>hurt=1</script>" in "".join(seen.words)
    assert "{{ 7*7 }}" in text
    assert "$\\frac{1}{2}$" in text
    for sign in ("\u202e", "\x1b"):
        assert sign in HOSTILE
        assert sign not in text
    assert "\\u202e" in text


def test_directories_of_whoever_draws_stay_out(text, chain):
    assert str(chain["A1B1"].parent) not in text
    assert "A1B1.json" in text


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_page(tmp_path, kind):
    text = page(of_bytes(tmp_path, **{kind: sample(kind)})).decode()
    assert "<h1>" in text
    assert "nothing but an example" in text


def test_missing_evidence_is_said(tmp_path):
    text = page(of_bytes(tmp_path, pair=sample("qualification"))).decode()
    assert "2 of the receipts that are named were not given" in text
    assert text.count("not given</p>") == 2


def test_a_colour_beside_the_palette_is_refused():
    def draw(figure: Figure) -> None:
        panel(figure, (10, 10, 90, 90)).plot([0, 1], [0, 1], color="#123456")

    with pytest.raises(ValueError, match="#123456 is no colour of the palette"):
        drawn("odd", "a figure", Size(100, 100), draw)


def test_stand_ins_become_variables_of_both_schemes():
    def draw(figure: Figure) -> None:
        axes = panel(figure, (10, 10, 90, 90))
        axes.plot([0, 1], [0, 1], color=OFF)
        axes.plot([0, 1], [1, 0], color=ON)

    svg = drawn("both", "two lines", Size(100, 100), draw)
    assert "var(--off)" in svg
    assert "var(--on)" in svg
    assert not re.search(r"#[0-9a-f]{6}", svg)
    assert set(LIGHT) == set(DARK) == set(STAND_INS)


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
@pytest.mark.parametrize("name", ["ink", "muted", "off", "on", "bad"])
@pytest.mark.parametrize("ground", ["paper", "band"])
def test_text_colours_have_enough_contrast(scheme, name, ground):
    high, low = sorted((luminance(scheme[name]), luminance(scheme[ground])), reverse=True)
    assert (high + 0.05) / (low + 0.05) >= 4.5
