"""All kinds in one discriminated union, read from raw text, and their published schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Final, get_args

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import refuse, shown
from pp4.receipts.envelope import SCHEMA, Envelope, Kind
from pp4.receipts.gates import Qualification, Rehearsal, Solo
from pp4.receipts.records import Incident, Preparation, RefusalReceipt
from pp4.receipts.runs import Budget, Measurement, WholeWorker

Receipt = (
    Solo
    | WholeWorker
    | Qualification
    | Budget
    | Measurement
    | Preparation
    | Rehearsal
    | RefusalReceipt
    | Incident
)
KINDS: Final[tuple[str, ...]] = get_args(Kind)
MODELS: Final[Mapping[str, type[Envelope]]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model for model in get_args(Receipt)
}

_MOST_PROBLEMS: Final = 1000

_ADAPTER: Final[TypeAdapter[Receipt]] = TypeAdapter(Annotated[Receipt, Field(discriminator="kind")])


def envelope_of(tree: object, where: str) -> dict[str, object]:
    """Return the tree as an object whose version and kind this package knows.

    Raises:
        RefusedError: SCHEMA (no object), UNKNOWN_VERSION or UNKNOWN_KIND.
    """
    if not isinstance(tree, dict):
        refuse(Code.SCHEMA, where, "a JSON object", f"JSON of type {type(tree).__name__}")
    version = tree.get("schema")
    if version != SCHEMA:
        refuse(Code.UNKNOWN_VERSION, where, f"schema {SCHEMA}", _member(version))
    kind = tree.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        refuse(Code.UNKNOWN_KIND, where, f"one of {', '.join(KINDS)}", _member(kind))
    return tree


def _member(value: object) -> str:
    return "none" if value is None else shown(value)


def read_model(raw: bytes, where: str) -> Receipt:
    """Validate the raw text of a receipt against the model of its kind.

    The text goes to pydantic as it is, never by way of Python numbers: there ``1.0`` would have
    lost what makes it differ from ``1``.

    Args:
        raw: bytes that :func:`pp4.receipts.canonical.parse` accepted.
        where: what to name in a refusal.

    Raises:
        RefusedError: SCHEMA, with the first place that does not fit.
    """
    try:
        return _ADAPTER.validate_json(raw)
    except ValidationError as error:
        count = error.error_count()
        expected = f"receipt of schema {SCHEMA}"
        if count > _MOST_PROBLEMS:
            # To spell them all out would cost a thousand times what it cost to find them.
            found = f"{count} places that do not fit"
            raise RefusedError(Refusal(Code.SCHEMA, where, expected, found)) from None
        problems = _listed(error)
        first = problems[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        found = f"{shown(place, 80)}: {shown(first['msg'])}{more}"
        raise RefusedError(Refusal(Code.SCHEMA, where, expected, found)) from None


def _listed(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_url=False, include_context=False, include_input=False)


def schemas() -> dict[str, bytes]:
    """Return the JSON schema of each kind as the bytes of the file that publishes it.

    Returns:
        kind to file content (indented, sorted, newline at the end).
    """
    published: dict[str, bytes] = {}
    for kind, model in MODELS.items():
        schema = model.model_json_schema(by_alias=True, mode="validation")
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
        schema["$id"] = f"urn:{SCHEMA.replace('/', ':')}:{kind}"
        text = json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=True)
        published[kind] = f"{text}\n".encode()
    return published
