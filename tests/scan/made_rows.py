"""Rows of all types that listings and exports have, for Hypothesis."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from rmqtool.scan.rows import Rows

OPTIONAL = frozenset({"extra"})
SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("number", pa.int64()),
        ("small", pa.int32()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("extra", pa.string()),
        ("nothing", pa.null()),
    ]
)
texts = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    [
        "",
        "plain",
        'quo"te',
        "back\\slash",
        "new\nline",
        "tab\t",
        "\x1b[31m",
        "\x7f",
        "\u202e",
        "中文",
        "a,b",
        "=1+1",
        "\u2028",
    ]
)
row = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["message", "blank"]),
        "number": st.integers(-(1 << 63), (1 << 63) - 1),
        "small": st.integers(-(1 << 31), (1 << 31) - 1) | st.none(),
        "flag": st.booleans(),
        "text": texts | st.none(),
        "keys": st.lists(texts, max_size=3),
        "properties": st.dictionaries(texts, texts, max_size=3).map(lambda found: list(found.items())),
        "extra": texts | st.none(),
        "nothing": st.none(),
    }
)
tables = st.lists(row, min_size=1, max_size=6)


def rows_of(values: list[dict[str, Any]]) -> Rows:
    return Rows(pa.RecordBatch.from_pylist(values, schema=SCHEMA), OPTIONAL)
