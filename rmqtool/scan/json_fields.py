"""Single fields of JSON bodies, as text: a column each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa


def parse_json(bodies: Iterable[bytes]) -> list[Any]:
    """Each body as JSON; None where it is none. Numbers stay the text that they are."""
    return [_parsed(body) for body in bodies]


def json_field(documents: Sequence[Any], path: str) -> pa.StringArray:
    """What stands at `path`, such as ``order.items.0.sku``, in each of the documents of `parse_json`.

    Text and numbers as they are, objects and lists as JSON; null where there is nothing, or null.
    """
    names = path.split(".")
    return pa.array([_text(_at(document, names)) for document in documents], pa.string())


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body.decode(), parse_int=_Number, parse_float=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return None


class _Number(str):
    """A number as it is written; JSON of an object or a list has it without quotes."""


def _at(document: Any, names: Sequence[str]) -> Any:
    for name in names:
        if isinstance(document, dict):
            document = document.get(name)
        elif isinstance(document, list) and name.isascii() and name.isdigit() and int(name) < len(document):
            document = document[int(name)]
        else:
            return None
    return document


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        # Half of a surrogate pair is JSON, and no text.
        return value and str(value).encode("utf-8", "replace").decode()
    return _as_json(value).encode("utf-8", "replace").decode()


def _as_json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_as_json(name)}:{_as_json(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_as_json, value)) + "]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)
