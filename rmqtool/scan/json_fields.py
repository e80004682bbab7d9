"""Fields of JSON bodies as they are written: text, numbers with all their digits, objects and lists as JSON.

msgspec reads the bodies where it is installed, and gives what stands at the paths as bytes; what it refuses, and
all of it without msgspec, is read by Python. Both give the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    if not refused:
        return found
    documents = [parse_json(stored[row]) for row in refused]
    return {path: _replaced(column, refused, [_text(_at(each, path)) for each in documents])
            for path, column in found.items()}  # fmt: skip


def _replaced(column: pa.StringArray, rows: Sequence[int], texts: Sequence[str | None]) -> pa.StringArray:
    """A column with other texts in some rows."""
    mask = np.zeros(len(column), dtype=np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(column, pa.array(mask), pa.array(texts, pa.string()))


class _FastReader:
    """Reads the texts at some paths with msgspec; it decodes nothing but these."""

    def __init__(self, tree: _Tree, paths: Sequence[str]) -> None:
        """`tree` are the names of the `paths`."""
        from msgspec import MsgspecError, Raw, json

        kind = _struct(tree)
        self._decode = json.Decoder(kind).decode
        self._nothing, self._null = kind(), Raw(_NULL)
        self._refused = (MsgspecError, RecursionError, ValueError)
        self._fields = {path: _fields_of(tree, path.split(".")) for path in dict.fromkeys(paths)}

    def texts(self, bodies: Sequence[bytes], *, is_utf8: bool) -> tuple[dict[str, pa.StringArray], list[int]]:
        """The texts at each path, and the rows that Python must read; all that is not UTF-8, unless all `is_utf8`."""
        try:
            documents, refused = self._documents(bodies, is_utf8=is_utf8), list[int]()
        except self._refused:
            documents, refused = self._one_by_one(bodies)
        return {path: self._column(documents, fields) for path, fields in self._fields.items()}, refused

    def _documents(self, bodies: Sequence[bytes], *, is_utf8: bool) -> list[Any]:
        """All bodies as documents; raises an error where one is refused."""
        for body in () if is_utf8 else bodies:
            body.decode()  # msgspec does not look at what it passes over
        return [*map(self._decode, bodies)]

    def _one_by_one(self, bodies: Sequence[bytes]) -> tuple[list[Any], list[int]]:
        documents, refused = [], []
        for row, body in enumerate(bodies):
            try:
                body.decode()
                documents.append(self._decode(body))
            except self._refused:  # noqa: PERF203 - a body is read apart from the others
                documents.append(self._nothing)
                refused.append(row)
        return documents, refused

    def _column(self, documents: Sequence[Any], fields: Sequence[str]) -> pa.StringArray:
        *above, last = fields
        if not above:
            return _as_shown(_strings([*map(attrgetter(last), documents)]))
        values: Iterable[Any] = documents
        for field in above:
            values = [each and getattr(each, field) for each in values]
        return _as_shown(_strings([self._null if each is None else getattr(each, last) for each in values]))


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
    """A type of msgspec with the names of a tree; what is not there is null. The garbage collector need not see it."""
    from msgspec import Raw, defstruct

    fields: list[Any] = []
    names: dict[str, str] = {}
    for number, (name, below) in enumerate(tree.items()):
        field = f"f{number}"
        names[field] = name
        fields.append((field, Raw, Raw(_NULL)) if below is None else (field, _struct(below) | None, None))
    return defstruct("Document", fields, rename=names, gc=False)


def _fields_of(tree: Mapping[str, Any], way: Sequence[str]) -> list[str]:
    """The fields of the types that lead along a path."""
    found, place = [], tree
    for name in way:
        found.append(f"f{[*place].index(name)}")
        place = place[name] or {}
    return found


def _strings(written: Sequence[Any]) -> pa.StringArray:
    """Values of msgspec as texts; joined by a byte that no JSON has, which is several times as fast as one by one."""
    joined = np.frombuffer(b"\0".join(written), np.uint8)
    is_between = joined == 0
    between = np.flatnonzero(is_between)
    if len(between) != len(written) - 1:
        return pa.array([str(each, "utf-8") for each in written], pa.string())
    ends = np.append(between, len(joined)) - np.arange(len(written))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.StringArray.from_buffers(len(written), pa.py_buffer(offsets), pa.py_buffer(joined[~is_between]))


def _as_shown(written: pa.StringArray) -> pa.StringArray:
    """Values as they are written in documents, none of which is empty; each as `_text` gives it."""
    _, offsets, data = written.buffers()
    starts = np.frombuffer(offsets, np.int32, len(written))
    first = np.frombuffer(data, np.uint8)[starts] if len(written) else starts
    shown, is_encoded = written, np.isin(first, _NESTED)
    if (is_text := first == ord('"')).any():
        shown = pc.ascii_trim(written, '"')
        is_encoded |= is_text & np.asarray(pc.match_substring(written, "\\"))
    rows = np.flatnonzero(is_encoded)
    if len(rows):
        texts = [_text(parse_json(each.encode())) for each in written.take(pa.array(rows)).to_pylist()]
        shown = _replaced(shown, rows.tolist(), texts)
    is_null = first == _NULL[0]
    return pc.if_else(pa.array(is_null), pa.scalar(None, pa.string()), shown) if is_null.any() else shown


_NESTED = np.frombuffer(b"{[", np.uint8)
_NULL = b"null"


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
