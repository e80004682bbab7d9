"""Writes `docs/schema/*.json` from the kinds of objects that commands print (`rmqtool/show/shapes.py`).

``python -m tests.commands.schema_pages`` does it for all of DOCUMENTS; a test holds what is published to it.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from rmqtool.base.errors import Exit
from rmqtool.base.times import CertainMoment
from rmqtool.commands.about import Program
from rmqtool.commands.bundle import Packed
from rmqtool.commands.explain import Explained
from rmqtool.commands.report import Written
from rmqtool.commands.undo import UndoResult
from rmqtool.show.clean_json import CleanResult
from rmqtool.show.copy import CopyAnswer
from rmqtool.show.cut import CutResult
from rmqtool.show.overview_json import InspectResult
from rmqtool.show.pending import PendingResult
from rmqtool.show.rebuild import RebuildResult
from rmqtool.show.salvage import ConvertResult, SalvageResult
from rmqtool.show.shapes import Error, Shape, json_name, rule_of
from rmqtool.show.sql import SqlResult
from rmqtool.show.status import StatusResult

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"

_NAMES_ARE_KEPT = (
    "Names may be added within a major version, but none is renamed, removed or given another type: a reader must "
    "ignore unknown names. `additionalProperties: false` is for the tests of this version."
)
_ERRORS = {Exit.USAGE, Exit.FAILED, Exit.IN_USE, Exit.NOT_A_STORE}
_LONG = {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 63) - 1}
_TIME = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$"
_DEFINED: dict[str, dict[str, Any]] = {
    "int64": {"title": "Signed 64-bit integer", **_LONG},
    "count": {"title": "Count", "type": "integer", "minimum": 0},
    "timestamp": {"title": "Moment, epoch ms", **_LONG},
    "time": {
        "title": "The moment beside it, RFC 3339 in UTC; null outside the years 1 to 9999",
        "type": ["string", "null"],
        "pattern": _TIME,
    },
}
_SIMPLE = {int: "integer", float: "number", str: "string", bool: "boolean", NoneType: "null"}


@dataclass(frozen=True)
class Document:
    """The one document of a command: its result, its title and what is said about it, and how the command may end."""

    command: str
    result: type
    title: str
    told: str
    statuses: frozenset[int]
    findings: str = "What was found."


class Kept:
    """The parts of a schema that were met so far, by name."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, Any]] = {}
        self._of: dict[type, str] = {}

    def ref(self, name: str) -> dict[str, Any]:
        """A reference to a part of this name."""
        self.parts.setdefault(name, _DEFINED[name])
        return {"$ref": f"#/$defs/{name}"}

    def object_of(self, kind: type, name: str | None = None) -> dict[str, Any]:
        """A reference to the schema of a kind of objects."""
        name = name or re.sub(r"(?<!^)([A-Z])", r"_\1", kind.__name__).lower()
        if kind not in self._of:
            assert name not in self.parts, f"two kinds of objects are {name}"
            self._of[kind] = name
            self.parts[name] = {}
            optional = {json_name(each) for each in get_type_hints(kind) if rule_of(kind, each).optional}
            self.parts[name] = closed(kind.__doc__ or "", dict(self.properties(kind)), optional)
        return {"$ref": f"#/$defs/{name}"}

    def properties(self, kind: type) -> Iterator[tuple[str, dict[str, Any]]]:
        """The schema of each field; two for a moment."""
        explained = comments(kind)
        for name, hint in get_type_hints(kind, include_extras=True).items():
            told = {"description": explained[name]} if name in explained else {}
            if "moment" in getattr(hint, "__metadata__", ()):
                time = self.ref("timestamp")
                time = time if hint == CertainMoment else {"anyOf": [time, {"type": "null"}]}
                yield f"{name}_timestamp", time | {"description": f"{explained[name].removesuffix('.')}, epoch ms."}
                yield f"{name}_time", self.ref("time") | {"description": "The same moment."}
            else:
                found = self.of(hint)
                if rule_of(kind, name).optional:
                    found = next((each for each in found.get("anyOf", ()) if each != {"type": "null"}), found)
                yield json_name(name), found | told

    def of(self, hint: Any) -> dict[str, Any]:
        """The schema of a type."""
        origin, parts = get_origin(hint), get_args(hint)
        if hint is Any:
            return {}
        if hint in _SIMPLE:
            return {"type": _SIMPLE[hint]}
        if origin is Annotated:
            [known] = hint.__metadata__
            return self.ref(known) if known in _DEFINED else self.of(parts[0]) | {"pattern": known}
        if origin is Literal:
            return {"const": parts[0]} if len(parts) == 1 else {"enum": [*parts]}
        if origin is list:
            return {"type": "array", "items": self.of(parts[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(parts[1])}
        if parts:
            return _any_of([self.of(part) for part in parts])
        assert issubclass(hint, Shape) or is_dataclass(hint), hint
        return self.object_of(hint)


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    if all(schema.keys() == {"type"} for schema in schemas):
        return {"type": [schema["type"] for schema in schemas]}
    return {"anyOf": schemas}


def closed(title: str, properties: dict[str, Any], optional: Container[str] = ()) -> dict[str, Any]:
    """The schema of an object with these names and no others."""
    return {
        "title": inspect.cleandoc(title).split("\n\n")[0].removesuffix("."),
        "type": "object",
        "required": [name for name in properties if name not in optional],
        "properties": properties,
        "additionalProperties": False,
    }


def comments(kind: type) -> dict[str, str]:
    """What the comments at the fields of a class, and of those that it extends, say about each."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        if "__annotations__" in vars(each) and each is not Shape:
            found |= _comments_in(inspect.getsource(each))
    return found


def _comments_in(source: str) -> dict[str, str]:
    lines, found = source.split("\n"), {}
    for field in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            first, last = field.lineno - 1, (field.end_lineno or field.lineno) - 1
            behind = lines[last].encode()[field.end_col_offset :].decode().strip()
            above: list[str] = []
            while lines[first - 1 - len(above)].lstrip().startswith("# "):
                above.insert(0, lines[first - 1 - len(above)].lstrip()[2:])
            text = " ".join(above) or behind.removeprefix("# ")
            if text and not text.startswith("fmt:"):
                found[field.target.id] = text
    return found


def schema_of(name: str, document: Document) -> dict[str, Any]:
    """The schema of the one document of a command."""
    kept = Kept()
    result = kept.object_of(document.result, "result")
    names = [document.command, *(["rmqtool"] if document.command == "inspect" else [])]
    told, kinds = "The path as it was given; null when the command line was not understood.", ["string", "null"]
    if document.command in ("explain", "version"):
        told, kinds = "No store is read.", ["null"]
    store = {"type": kinds, "description": told}
    kept.object_of(Error)
    texts = {"type": ["string", "null"]}
    numbers = {"anyOf": [kept.ref("int64"), {"type": "null"}]}
    kept.parts |= {
        "finding": closed("One thing that is not as it should be", {
            "code": {"type": "string", "description": "Stable name.", "pattern": r"^[a-z]+(\.[a-z0-9-]+)+$"},
            "severity": {"enum": ["info", "warning", "error"], "description": "How bad it is."},
            "message": {"type": "string", "description": "What is wrong."},
            "effect": {"type": "string", "description": "What the broker does with it."},
            "remedy": texts | {"description": "The command to run, or what to do."},
            "fault": texts | {"pattern": r"^F\d+$", "description": "Number in the catalogue of faults."},
            "file": texts | {"description": "Path, relative to the store."},
            "offset": numbers | {
                "description": "Bytes: in the commit log for codes `commitlog.*`, in the file otherwise."},
            "topic": texts | {"description": "Topic."},
            "queue_id": numbers | {"description": "Queue number."},
            "queue_offset": numbers | {"description": "Unit number in the queue."},
            "count": {"type": "integer", "minimum": 1, "description": "How many identical ones this one represents."},
            "details": {
                "type": "object",
                "description": "Its facts as typed fields: sizes, offsets, names, what was expected and found."},
        }),
        "exit": closed("The exit status", {
            "code": {"type": "integer", "minimum": 0, "maximum": 255, "description": "What the program exits with."},
            "name": {"enum": [status.label for status in Exit], "description": "Its name."},
        }),
    }  # fmt: skip
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{name}.schema.json",
        "description": f"{document.told} {_NAMES_ARE_KEPT}",
        **closed(document.title, {
            "schema": {
                "enum": [f"rmqtool.{each}/1" for each in names],
                "description": "Name and major version of this shape.",
            },
            "command": {"enum": names, "description": "The command; rmqtool if the command line has none."},
            "store": store,
            "result": {"anyOf": [result, {"type": "null"}], "description": "null with an error."},
            "findings": {"type": "array", "items": {"$ref": "#/$defs/finding"}, "description": document.findings},
            "exit": {"$ref": "#/$defs/exit"},
            "error": {"$ref": "#/$defs/error"},
        }),
        "required": ["schema", "command", "store", "result", "findings", "exit"],
        "if": {"required": ["error"]},
        "then": {"properties": {"result": {"type": "null"}, "findings": {"maxItems": 0}, **_ends(_ERRORS)}},
        "else": {"properties": {"store": {"type": kinds[0]}, "result": {"type": "object"}, **_ends(document.statuses)}},
        "$defs": kept.parts,
    }  # fmt: skip


def _ends(statuses: set[Exit] | frozenset[int]) -> dict[str, Any]:
    return {"exit": {"properties": {"code": {"enum": sorted(map(int, statuses))}}}}


DOCUMENTS = {
    "clean": Document(
        "clean",
        CleanResult,
        "rmqtool clean STORE --json",
        "The one document of clean, or about why there is none.",
        frozenset({Exit.OK, Exit.LOSSY}),
    ),
    "bundle": Document(
        "bundle",
        Packed,
        "rmqtool bundle STORE --json",
        "The one document about a bundle that was written.",
        frozenset({Exit.OK, Exit.FINDINGS, Exit.LOSSY}),
        "Empty: they are in the bundle; `rmqtool verify --json` has them.",
    ),
    "explain": Document(
        "explain",
        Explained,
        "rmqtool explain CODE --json",
        "Pages of the catalogue of findings.",
        frozenset({Exit.OK}),
        "Always empty.",
    ),
    "inspect-store": Document(
        "inspect",
        InspectResult,
        "rmqtool inspect STORE --json",
        "The one document about a whole store, or about why there is none.",
        frozenset({Exit.OK, Exit.LOSSY}),
    ),
    "sql": Document(
        "sql",
        SqlResult,
        "rmqtool sql STORE --explain --json, and --tables",
        "The one document about what a statement would read, or about all tables; rows are lines without a schema.",
        frozenset({Exit.OK}),
        "Always empty.",
    ),
    "pending": Document(
        "pending",
        PendingResult,
        "rmqtool pending STORE --json",
        "The one document about what a stopped broker still has to deliver.",
        frozenset({Exit.OK, Exit.FINDINGS, Exit.LOSSY}),
        "Empty: what was found is in the result.",
    ),
    "report": Document(
        "report",
        Written,
        "rmqtool report STORE --json",
        "The one document about a report that was written.",
        frozenset({Exit.OK, Exit.FINDINGS, Exit.LOSSY}),
        "Empty: they are on the page; `rmqtool verify --json` has them.",
    ),
    "status": Document(
        "status",
        StatusResult,
        "rmqtool status STORE --json",
        "The one document about the status of a store; with --watch one in each line.",
        frozenset({Exit.OK, Exit.FINDINGS, Exit.LOSSY}),
        "What names, sizes and small files show.",
    ),
    "undo": Document(
        "undo",
        UndoResult,
        "rmqtool undo STORE --json",
        "The one document about what was taken back, or about why nothing was.",
        frozenset({Exit.OK, Exit.LOSSY}),
    ),
    "version": Document(
        "version",
        Program,
        "rmqtool version --json",
        "The version of rmqtool.",
        frozenset({Exit.OK}),
        "Always empty.",
    ),
    "copy": Document(
        "copy",
        CopyAnswer,
        "rmqtool copy STORE --output DIR --json",
        "The one document about a copy that was made, planned or checked.",
        frozenset({Exit.OK, Exit.FINDINGS, Exit.LOSSY}),
        "What is wrong with the store, or with the copy.",
    ),
    "cut": Document(
        "cut",
        CutResult,
        "rmqtool cut STORE --at OFFSET --json",
        "The one document about the end of a log that was removed, or would be.",
        frozenset({Exit.OK, Exit.FINDINGS}),
        "Remaining messages that a predicted start does not serve.",
    ),
    "convert": Document(
        "convert",
        ConvertResult,
        "rmqtool convert --json",
        "The one document about a plain store that is made of one with DLedger, or with several commit log paths.",
        frozenset({Exit.OK, Exit.FINDINGS, Exit.LOSSY}),
        "Of the queues and the index that were written: warnings and errors.",
    ),
    "salvage": Document(
        "salvage",
        SalvageResult,
        "rmqtool salvage --json",
        "The one document about a new store that is made of damaged ones.",
        frozenset({Exit.OK, Exit.FINDINGS, Exit.LOSSY}),
        "Of the queues and the index that were written: warnings and errors.",
    ),
    "rebuild-cq": Document(
        "rebuild-cq",
        RebuildResult,
        "rmqtool rebuild-cq STORE --json",
        "The one document about a rebuild, or about why there is none.",
        frozenset({Exit.OK, Exit.FINDINGS, Exit.LOSSY}),
    ),
    "rebuild-index": Document(
        "rebuild-index",
        RebuildResult,
        "rmqtool rebuild-index STORE --json",
        "The one document about a rebuild, or about why there is none.",
        frozenset({Exit.OK, Exit.LOSSY}),
    ),
}


def pages() -> dict[Path, str]:
    """Each file and its text."""
    return {
        SCHEMAS / f"{name}.schema.json": json.dumps(schema_of(name, document), indent=2, ensure_ascii=False) + "\n"
        for name, document in DOCUMENTS.items()
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    sys.exit()
