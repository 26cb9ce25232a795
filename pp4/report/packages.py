"""What a page needs beyond the base install."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from pp4.errors import Code, Refusal, RefusedError

PACKAGES: Final = ("jinja2", "matplotlib")


def require_page() -> None:
    """Refuse a page that could not be drawn, before anything is read.

    Raises:
        RefusedError: ``MISSING_PACKAGE``.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise RefusedError(
            Refusal(
                Code.MISSING_PACKAGE,
                "pp4 report --html",
                f"{' and '.join(PACKAGES)} (the extra pp4[report])",
                f"no {' and no '.join(missing)}",
                source="pyproject.toml",
                next="pip install 'pp4[report]'",
            )
        )
