"""From a drawing function to one inline SVG: colours as variables, text as text, equal bytes.

Plots are drawn at one unit a CSS pixel.  What matplotlib writes is taken apart and put together
again without style sheet, metadata, name spaces and identifiers, which would meet those of other
figures in the same page.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from pp4.receipts.canonical import shown
from pp4.report.palette import INK, MUTED, RULE, STAND_INS
from pp4.report.words import typeset

SMALL: Final = 11.5
NORMAL: Final = 12.5
_LONGEST: Final = 48
_RULES: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pp4",
    # A dollar in a name that a stranger chose is a dollar.
    "text.parse_math": False,
    "path.simplify": False,
    "font.family": "DejaVu Sans",
    "font.size": SMALL,
    "text.color": INK,
    "axes.unicode_minus": True,
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-9, 9),
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "none",
    "axes.linewidth": 1.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.size": 4,
    "ytick.major.size": 0,
    "ytick.major.pad": 6,
    "lines.solid_capstyle": "butt",
}
_VARIABLES: Final = {value: f"var(--{name})" for name, value in STAND_INS.items()}
_LONG: Final = re.compile(r"-?[0-9]+\.[0-9]{3,}")
_COLOUR: Final = re.compile(r"#[0-9a-f]{6}\b")
_KEPT: Final = frozenset(
    {"d", "x", "y", "width", "height", "style", "transform", "clip-path", "href", "id"}
)
_TEXT_STYLE: Final = ("font-size", "font-weight", "text-anchor", "fill")


@dataclass(frozen=True, slots=True)
class Size:
    """Width and height in CSS pixels."""

    width: int
    height: int


def drawn(name: str, label: str, size: Size, draw: Callable[[Figure], None]) -> Markup:
    """Draw a figure and return it as an ``svg`` element for the body of a page.

    Args:
        name: a word that no other figure of the page has.
        label: what a screen reader says in its place.
        size: of the drawing; the page may scale it.
        draw: puts axes into an empty figure.

    Raises:
        ValueError: it was drawn with a colour that the palette does not have.
    """
    with matplotlib.rc_context():
        # A matplotlibrc of the person's must not change what a receipt looks like.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RULES)
        figure = Figure(figsize=(size.width / 72, size.height / 72), dpi=72)
        FigureCanvasSVG(figure)
        draw(figure)
        text = io.StringIO()
        figure.savefig(
            text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    root = ElementTree.fromstring(text.getvalue())
    _bare(root)
    _only_used_names(root, name)
    root.attrib = {
        "viewBox": f"0 0 {size.width} {size.height}",
        "role": "img",
        "aria-label": label,
        "width": str(size.width),
        "height": str(size.height),
    }
    # Characters are escaped by the serialiser; everything else was written above.
    return Markup(ElementTree.tostring(root, encoding="unicode"))


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure as the page shows it.

    Attributes:
        svg: the only form, or that for wide pages.
        narrow: for pages narrower than 720 pixels; None where one form serves all.
    """

    svg: Markup
    narrow: Markup | None = None


def in_two_widths(
    name: str, label: str, wide: Size, narrow: Size, draw: Callable[[Figure, bool], None]
) -> Drawing:
    """Draw a figure for wide and for narrow pages, so that its text keeps its size.

    Args:
        name: see :func:`drawn`.
        label: see :func:`drawn`.
        wide: size of the one.
        narrow: size of the other.
        draw: gets the empty figure and whether it is the narrow one.
    """
    return Drawing(
        drawn(f"{name}-w", label, wide, lambda figure: draw(figure, False)),
        drawn(f"{name}-n", label, narrow, lambda figure: draw(figure, True)),
    )


def panel(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Add axes inside a figure.

    Args:
        figure: the figure.
        box: left, top, right and bottom edge in pixels from the upper left corner.
    """
    left, top, right, bottom = box
    width, height = figure.get_size_inches() * 72
    axes = figure.add_axes(
        (left / width, 1 - bottom / height, (right - left) / width, (bottom - top) / height)
    )
    axes.margins(x=0.02)
    return axes


def rules(axes: Axes, axis: str) -> None:
    """Draw faint lines at the ticks of one axis, below everything else."""
    axes.set_axisbelow(True)
    (axes.xaxis if axis == "x" else axes.yaxis).grid(visible=True, color=RULE, linewidth=0.6)


def name_of(text: str, longest: int = _LONGEST) -> str:
    """Return a name from a receipt as printable ASCII that fits into a figure."""
    return shown(text, longest)


def fits(text: str, width: float, size: float = SMALL) -> bool:
    """Say whether a text of that font size is surely narrower than so many pixels."""
    # 0.64 em is what the widest of the page's fonts takes on average.
    return len(text) * 0.64 * size <= width


def _bare(element: ElementTree.Element) -> None:
    """Drop what an element inside a page does not need, and write colours as variables."""
    for child in list(element):
        child.tag = child.tag.rpartition("}")[2]
        if child.tag in ("metadata", "style") or (child.tag == "defs" and _is_style(child)):
            element.remove(child)
            continue
        _bare(child)
        child.tail = None
    element.tag = element.tag.rpartition("}")[2]
    element.text = typeset(element.text or "") if element.tag == "text" else None
    element.attrib = dict(_attributes(element))


def _is_style(element: ElementTree.Element) -> bool:
    return len(element) == 1 and element[0].tag.endswith("style")


def _attributes(element: ElementTree.Element) -> Iterator[tuple[str, str]]:
    for name, value in element.attrib.items():
        bare = name.rpartition("}")[2]
        if bare not in _KEPT:
            continue
        if bare == "transform" and value.startswith("rotate(-0 "):
            continue
        if bare == "style":
            value = _style(value, element.tag)
        elif bare == "d":
            value = " ".join(value.split())
        if bare in ("d", "x", "y", "width", "height"):
            value = _LONG.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), value)
        yield bare, value


def _style(text: str, tag: str) -> str:
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if tag == "text":
        parts = [part for part in parts if part.startswith(_TEXT_STYLE)]
        if not any(part.startswith("fill") for part in parts):
            # matplotlib leaves out black, which no text here is drawn with.
            raise ValueError("text without a colour of the palette")
    return _COLOUR.sub(_variable, "; ".join(parts))


def _variable(match: re.Match[str]) -> str:
    try:
        return _VARIABLES[match[0]]
    except KeyError:
        raise ValueError(f"{match[0]} is no colour of the palette") from None


def _only_used_names(root: ElementTree.Element, name: str) -> None:
    """Keep the identifiers that something refers to, with the figure's name before each."""
    used = set()
    for element in root.iter():
        for attribute in ("href", "clip-path"):
            value = element.get(attribute)
            if value is not None:
                target = value.removeprefix("url(").removesuffix(")").removeprefix("#")
                used.add(target)
                element.set(attribute, value.replace(f"#{target}", f"#{name}-{target}"))
    for element in root.iter():
        target = element.attrib.pop("id", "")
        if target in used:
            element.set("id", f"{name}-{target}")
