"""The options that an output was exported with, by its manifest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rmqtool.base.int64 import Int64
from rmqtool.export.options import BodyFormat, ExportOptions, Format
from rmqtool.scan.filters import Filters
from rmqtool.store.message_query import Query


def options_of(manifest: dict[str, Any]) -> ExportOptions:
    """What an output was exported with, as far as it says what stands in its files."""
    form: Format = manifest.get("format", "parquet")  # manifests of before have none
    body_format: BodyFormat = manifest.get("body_format") or "base64"
    query = replace(query_of(manifest), epoch_ms=form != "parquet")
    int64: Int64 = manifest.get("int64") or "number"
    later = null_before_of(manifest)
    return ExportOptions(query, format=form, body_format=body_format, int64=int64, null_before=later)


def null_before_of(manifest: dict[str, Any]) -> dict[str, dict[str, int]]:
    """The columns that came after the first run: before which physical offset rows of each store are null there."""
    return {column["name"]: column["null_before"] for column in manifest["columns"] if "null_before" in column}


def query_of(manifest: dict[str, Any]) -> Query:
    """The query that an output was exported with."""
    given = manifest["filters"]
    filters = Filters(
        topics=tuple(given["topic"]),
        queue_ids=tuple(given["queue"]),
        tags=tuple(given["tag"]),
        keys=tuple(given["key"]),
        from_timestamp=given["from_timestamp"],
        to_timestamp=given["to_timestamp"],
        from_offset=given["from_offset"],
        to_offset=given["to_offset"],
        excluded_topics=tuple(given.get("exclude_topic", ())),
        transactions=tuple(given.get("transaction", ())),
    )
    columns = tuple(column["name"] for column in manifest["columns"])
    return Query(columns, manifest["body"], filters, tuple(manifest["include"]))
