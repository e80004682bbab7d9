"""`--int64 string`: every JSON says the same, with whole numbers as text but where 32 bits hold them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtool.base.numbers import SMALL_FIELDS
from rmqtool.scan.columns import COLUMNS
from tests.building import LogBuilder
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.unchanged import unchanged

STORE = "5.3.3-single"
BIG = (1 << 53) + 1


def as_text(value: Any, name: str = "") -> Any:
    """What a value should be: written apart from the program, as the page says it."""
    if isinstance(value, dict):
        return {key: as_text(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [as_text(item, name) for item in value]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number and name not in SMALL_FIELDS else value


def values(text: str) -> list[Any]:
    """The one document, or the lines."""
    return [json.loads(text)] if text.startswith("{\n") else [json.loads(line) for line in text.splitlines()]


def places(store: Path) -> Iterator[list[str | Path]]:
    yield ["inspect", store]
    for part in ("commitlog", "consumequeue", "index", "checkpoint", "config"):
        yield ["inspect", store / part, "--limit", "5"]
    yield ["inspect", store / "commitlog", "--count"]
    yield ["query", store, "--offset", "0", "--trace"]
    yield ["query", store, "--at", "2026-11-21", "--topic", "nosuch"]
    yield ["query", store / "nowhere", "--offset", "0"]
    yield ["pending", store, "--now", "2026-11-22"]


@pytest.mark.slow
def test_it_is_the_same_but_for_the_numbers(golden_store: GoldenStore) -> None:
    """Documents, lines of columns, lines of single objects, errors."""
    for line in places(golden_store(STORE)):
        plain, text = rmqtool(*line, "--json"), rmqtool(*line, "--json", "--int64", "string")
        assert (text.status, text.err) == (plain.status, plain.err), line
        assert values(text.out) == [as_text(value) for value in values(plain.out)], line


def test_an_export(tmp_path: Path) -> None:
    """Of NDJSON the files too, which a check reads; an output has one way of writing them."""
    builder = LogBuilder()
    builder.add(queue_offset=BIG, queue_id=7)
    store, output = builder.write(tmp_path / "store"), tmp_path / "out"
    line: list[str | Path] = ["export", store, "--output", output, "--format", "ndjson", "--engine", "local"]
    with unchanged(store):
        found = rmqtool(*line, "--int64", "string", "--json")
        assert rmqtool("export", store, "--check", output).status == 0
        assert "other int64" in rmqtool(*line, "--mode", "incremental").err
    assert found.document["result"]["rows"] == "1"
    (file,) = output.glob("*.ndjson")
    row = json.loads(file.read_text())
    assert (row["queue_offset"], row["queue_id"], row["keys"]) == (str(BIG), 7, [])


def test_small_fields_are_those_of_32_bits() -> None:
    """Of a message all that need no more, and the exit status."""
    small = {name for name, column in COLUMNS.items() if column.type == pa.int32()}
    assert small | {"code"} == SMALL_FIELDS
