"""Fields of JSON bodies as they are written: text, numbers with all their digits, objects and lists as JSON.

msgspec reads the bodies where it is installed, and gives what stands at the paths as bytes; what it refuses, and
all of it without msgspec, is read by Python. Both give the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from rmqtool.scan.windows import is_utf8

_Tree = dict[str, Any]  # names in a document, and None or those below


def json_fields(bodies: pa.BinaryArray, paths: Sequence[str]) -> dict[str, pa.StringArray]:
    """What stands at each of the `paths`, such as ``order.items.0.sku``, in each of the `bodies`.

    Null where there is nothing, or null, and where a body is no JSON.
    """
    stored = bodies.to_pylist()
    reader = _fast_reader(tuple(paths))
    if reader is None:
        documents = [*map(parse_json, stored)]
        return {path: pa.array([_text(_at(each, path)) for each in documents], pa.string()) for path in paths}
    found, refused = reader.texts(stored, is_utf8=is_utf8(bodies))
    for row in refused:
        document = parse_json(stored[row])
        for path in paths:
            found[path][row] = _text(_at(document, path))
    return {path: pa.array(texts, pa.string()) for path, texts in found.items()}


class _FastReader:
    """Reads the texts at some paths with msgspec; it decodes nothing but these."""

    def __init__(self, tree: _Tree, paths: Sequence[str]) -> None:
        """`tree` are the names of the `paths`."""
        from msgspec import UNSET, MsgspecError, json

        kind = _struct(tree)
        self._decode = json.Decoder(kind).decode
        self._nothing, self._unset = kind(), UNSET
        self._refused = (MsgspecError, RecursionError, ValueError)
        self._fields = {path: _fields_of(tree, path.split(".")) for path in dict.fromkeys(paths)}

    def texts(self, bodies: Sequence[bytes], *, is_utf8: bool) -> tuple[dict[str, list[str | None]], list[int]]:
        """The texts at each path, and the rows that Python must read; all that is not UTF-8, unless all `is_utf8`."""
        documents, refused = [], []
        decode, nothing, errors = self._decode, self._nothing, self._refused
        for row, body in enumerate(bodies):
            try:
                if not is_utf8:
                    body.decode()  # msgspec does not look at what it passes over
                documents.append(decode(body))
            except errors:  # noqa: PERF203 - a body is read apart from the others
                documents.append(nothing)
                refused.append(row)
        return {path: self._column(documents, fields) for path, fields in self._fields.items()}, refused

    def _column(self, documents: Sequence[Any], fields: Sequence[str]) -> list[str | None]:
        values, unset = documents, self._unset
        for field in fields:
            values = [unset if each is None or each is unset else getattr(each, field) for each in values]
        texts = (None if each is unset or each is None else str(each, "utf-8") for each in values)
        return [text if text is None or text[0] not in _ENCODED else _plain(text) for text in texts]


@lru_cache(maxsize=16)
def _fast_reader(paths: tuple[str, ...]) -> _FastReader | None:
    """The reader of some paths; None without msgspec, for paths into lists, and where one leads on from another."""
    if find_spec("msgspec") is None:
        return None
    tree = _tree_of(paths)
    return None if tree is None else _FastReader(tree, paths)


def _tree_of(paths: Sequence[str]) -> _Tree | None:
    """The names of all paths as a tree; None where one is a number, or leads on from another path."""
    tree: _Tree = {}
    for path in dict.fromkeys(paths):
        *above, last = path.split(".")
        place = tree
        for name in above:
            below = place.setdefault(name, {})
            if below is None:
                return None
            place = below
        if place.get(last, None) is not None or any(name.isdigit() for name in (*above, last)):
            return None
        place[last] = None
    return tree


def _struct(tree: _Tree) -> Any:
    """A type of msgspec with the names of a tree; what is not there is unset."""
    from msgspec import UNSET, Raw, UnsetType, defstruct

    fields: list[Any] = []
    names: dict[str, str] = {}
    for number, (name, below) in enumerate(tree.items()):
        field = f"f{number}"
        names[field] = name
        kind: Any = Raw | UnsetType if below is None else _struct(below) | None | UnsetType
        fields.append((field, kind, UNSET))
    return defstruct("Document", fields, rename=names)


def _fields_of(tree: Mapping[str, Any], way: Sequence[str]) -> list[str]:
    """The fields of the types that lead along a path."""
    found, place = [], tree
    for name in way:
        found.append(f"f{[*place].index(name)}")
        place = place[name] or {}
    return found


_ENCODED = '"{[n'
"""How values begin that are not shown as they are written."""


def _plain(written: str) -> str | None:
    """A value as it is written in a document; as `_text` gives it."""
    if written[0] == '"' and "\\" not in written:
        return written[1:-1]
    return _text(parse_json(written.encode()))


def json_field(body: bytes, path: str) -> str | None:
    """One field of a body as text, such as ``order.id``; None where there is none, or no JSON."""
    return _text(_at(parse_json(body), path))


def parse_json(body: bytes) -> Any:
    """A body as JSON; None where it is none. Numbers stay the text that they are."""
    try:
        return json.loads(body.decode(), parse_int=_Number, parse_float=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return None


class _Number(str):
    """A number as it is written; JSON of an object or a list has it without quotes."""


def _at(document: Any, path: str) -> Any:
    for name in path.split("."):
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
