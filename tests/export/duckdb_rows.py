"""What DuckDB reads, in a process of its own: at exit its bindings print what they leaked, amid our own output."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa

_PROGRAM = """
import sys
import duckdb
import pyarrow as pa

duckdb.sql("set timezone='UTC'")
table = duckdb.sql(sys.argv[1]).to_arrow_table()
with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
    stream.write_table(table)
"""


def duckdb_rows(query: str) -> list[dict[str, Any]]:
    """The rows of an answer, times in UTC."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM, query], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    rows: list[dict[str, Any]] = pa.ipc.open_stream(done.stdout).read_all().to_pylist()
    return rows
