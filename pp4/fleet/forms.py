"""Files of a fleet: canonical JSON (RFC 8785) of one model, read as strictly as receipts are."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from pp4.errors import Code
from pp4.receipts.canonical import parse, read_file, refuse, require_canonical, shown
from pp4.receipts.envelope import Model

_M = TypeVar("_M", bound=Model)


def read_form(model: type[_M], schema: str, path: Path) -> _M:
    """Read a file that holds nothing but the canonical form of a model.

    Args:
        model: what it has to be.
        schema: the version that its member ``schema`` has to name.
        path: the file.

    Raises:
        RefusedError: it cannot be read, is no JSON, of another version (``UNKNOWN_VERSION``), or
            does not fit (``SCHEMA``).
        WrongError: ``NOT_CANONICAL``: it is spelled otherwise.
    """
    where = shown(str(path))
    raw = read_file(path)
    tree = parse(raw, where)
    found = tree.get("schema") if isinstance(tree, dict) else None
    if found != schema:
        refuse(Code.UNKNOWN_VERSION, where, f"a file of schema {schema}", shown(found))
    require_canonical(raw, tree, where)
    return validated(model, raw, where)


def validated(model: type[_M], raw: bytes, where: str) -> _M:
    """Return the model of JSON text.

    Raises:
        RefusedError: ``SCHEMA``, with the first place that does not fit.
    """
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        refuse(Code.SCHEMA, where, model.__name__.lower(), f"{shown(place, 80)}: {first['msg']}")
