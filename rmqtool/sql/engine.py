"""DuckDB over the tables of stores: it only reads, within memory, and reaches no file but its own temporary ones.

Its settings refuse files, extensions and changes of settings; a look at the kind of each statement refuses what they
do not: changes of the tables, several statements at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqtool.base.errors import RmqtoolError, UnsupportedError, UsageError, reason_of
from rmqtool.base.limits import MIB
from rmqtool.base.new_files import own_directory
from rmqtool.sql.catalog import VIEWS, tables_of, unknown
from rmqtool.sql.tables import Reading, Stores, Table

if TYPE_CHECKING:
    from typing_extensions import Self

_ROWS_AT_ONCE = 1 << 11  # as many as the engine itself has: rows may have large bodies
_ONLY_READS = "rmqtool sql only reads"
_LOGGING = re.compile(r"\benable_logging\b", re.IGNORECASE)  # 1.4 lets it change a locked setting, and ends by it
_EXPLAIN = re.compile(r"\s*explain\s+(?:analyze\s+)?(?:\([^)]*\)\s*)?", re.IGNORECASE)
_UNKNOWN_TABLE = re.compile(r"Table with name \"?(.+?)\"? does not exist")
_UNKNOWN_COLUMN = re.compile(r'(?:Referenced column|column named|Column) "(.+?)"')
_TEXT = re.compile(r"'((?:[^']|'')*)'")
_LINE = re.compile(r"^LINE \d+:.*", re.MULTILINE)
_KIND = re.compile(r"^(Catalog|Binder|Parser|Permission|Invalid Input|Conversion|Out of Memory) Error: ")

_MACROS = {
    "field(body, path)": "try(json_extract_string(body, path))",
    "get_json_object(body, path)": "try(json_extract_string(body, path))",
}


@dataclass(frozen=True)
class Limits:
    """What the engine may take: bytes of memory and of temporary files, where these are, and threads."""

    memory: int = 512 * MIB
    temporary: Path | None = None
    temporary_size: int = 4096 * MIB
    threads: int = 1


class Answer:
    """The rows of a statement, which are read once, while they are taken.

    `reading` says what was read for them, and what was passed over. What it needs is let go of at its end, or by
    `close`, or at the end of a block.
    """

    def __init__(self, rows: pa.RecordBatchReader, reading: Reading, close: Callable[[], None]) -> None:
        self._rows = rows
        self.reading = reading
        self.schema: pa.Schema = rows.schema
        self.close = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow record batches; raises RmqtoolError."""
        try:
            while True:
                with _told(self.reading):
                    batch = next(self._rows, None)
                if batch is None:
                    return
                yield batch
        finally:
            self.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each row by its names; maps are lists of pairs."""
        for batch in self.batches():
            yield from batch.to_pylist()

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table, in memory."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)

    def to_pandas(self) -> Any:
        """All rows as a `pandas.DataFrame`, in memory; needs pandas."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """All rows as a `polars.DataFrame`, in memory; needs polars."""
        import polars

        return polars.from_arrow(self.to_arrow())


class Database:
    """The tables of stores in an engine; a context, which ends it."""

    def __init__(self, stores: Stores, limits: Limits) -> None:
        """Raises UnsupportedError without the engine."""
        self.reading = stores.reading
        self._limits = limits
        self.tables = tables_of(stores)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        limits = self._limits
        folder = self._stack.enter_context(_temporary(limits.temporary))
        settings = {
            "memory_limit": f"{limits.memory // MIB}MiB",
            "temp_directory": folder,
            "max_temp_directory_size": f"{limits.temporary_size // MIB}MiB",
            "threads": limits.threads,
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",
        }
        self._connection = self._stack.enter_context(_engine().connect(":memory:", config=settings))
        for table in self.tables:
            self._connection.register(table.name, table)
        for signature, meaning in _MACROS.items():
            self._connection.execute(f"create temp macro {signature} as {meaning}")
        for name, statement in VIEWS.items():
            self._connection.execute(f"create temp view {name} as {statement}")
        # The engine takes Python without a script for somebody who wants to see its own bar.
        for setting in (
            "TimeZone = 'UTC'",
            "enable_progress_bar = false",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self._connection.execute(f"set {setting}")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the engine, and remove its temporary files."""
        self._stack.close()

    def columns(self) -> Iterator[tuple[str, str, str]]:
        """Table, name and type of each column, of views too."""
        for name in (*(table.name for table in self.tables), *VIEWS):
            for column, kind, *_ in self._connection.execute(f"describe {name}").fetchall():
                yield name, column, kind

    def ask(self, statement: str, close: Callable[[], None] = lambda: None) -> Answer:
        """The answer to one statement that reads; raises UsageError for any other, and for what is wrong in it.

        `close` is called when all rows are taken.
        """
        text = self._checked(statement)
        self.reading.texts = [each.replace("''", "'") for each in _TEXT.findall(text)]
        with _told(self.reading, self.tables):
            relation: Any = self._connection.sql(text)
            if relation is None:
                raise UsageError("the statement has no answer", hint=_ONLY_READS)
            # 1.4 has the older name only.
            read = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
            rows = read(_ROWS_AT_ONCE)
        return Answer(rows, self.reading, close)

    def _checked(self, text: str) -> str:
        """The one statement in a text; raises UsageError unless it is one that reads."""
        with _told(self.reading):
            statements = self._connection.extract_statements(text)
        kinds = [each.type.name for each in statements]
        # 1.4 makes several statements of such a PIVOT, and these have no text.
        if kinds[:1] == ["MULTI"] or (kinds[1:] and not statements[0].query):
            raise UsageError("PIVOT needs its values named", hint="such as: pivot ... on topic in ('a', 'b')")
        if not statements:
            raise UsageError("there is no statement", hint='rmqtool sql STORE "from messages limit 10"')
        if len(statements) != 1:
            raise UsageError(f"one statement is answered at a time, not {len(statements)}")
        [statement], [kind] = statements, kinds
        if _LOGGING.search(statement.query):
            raise UsageError(f"{_ONLY_READS}: it changes no setting, as enable_logging does")
        if kind == "EXPLAIN":
            inner = _EXPLAIN.sub("", statement.query, count=1)
            if _EXPLAIN.match(inner) or inner == statement.query:
                raise UsageError(f"{_ONLY_READS}, and this explains no statement that does")
            self._checked(inner)
        elif kind != "SELECT":
            raise UsageError(f"{_ONLY_READS}: it answers no {kind}", hint="begin with select")
        return str(statement.query)


@contextmanager
def _temporary(parent: Path | None) -> Iterator[str]:
    """A directory of our own, which nobody else may read."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(own_directory("rmqtool-sql-", parent))
        except OSError as error:
            raise UsageError(f"cannot create a temporary directory: {reason_of(error)}", file=parent) from error
        yield folder


def _engine() -> Any:
    try:
        import duckdb
    except ImportError as error:
        message = "SQL needs the package duckdb"
        raise UnsupportedError(message, hint="pip install 'rmqtool[sql]'") from error
    return duckdb


@contextmanager
def _told(reading: Reading, tables: Sequence[Table] = ()) -> Iterator[None]:
    """Turn what the engine raises into an RmqtoolError; an error of our own that it has wrapped is raised itself."""
    try:
        yield
    except RmqtoolError:
        raise
    except Exception as error:
        own, reading.failed = reading.failed, None
        if own is not None:
            raise own from None
        if not isinstance(error, (_engine().Error, pa.ArrowException)):
            raise
        text = str(error)
        if "INTERRUPT" in text or "KeyboardInterrupt" in text:
            raise KeyboardInterrupt from error
        if "Out of Memory" in text or type(error).__name__ == "OutOfMemoryException":
            hint = "--memory and --temp-size allow more"
            raise RmqtoolError(f"the engine needs more than its limits: {_first_line(text)}", hint=hint) from error
        raise _wrong(text, tables) from error


def _wrong(text: str, tables: Sequence[Table]) -> UsageError:
    """The error of a wrong statement, with names that are near to one that there is not, or the wrong line."""
    for pattern, what in ((_UNKNOWN_TABLE, "table"), (_UNKNOWN_COLUMN, "column")):
        if found := pattern.search(text):
            return unknown(what, found[1], tables)
    line = _LINE.search(text)
    return UsageError(_first_line(text), hint=line[0] if line else None)


def _first_line(text: str) -> str:
    return _KIND.sub("", text.strip().split("\n")[0])
