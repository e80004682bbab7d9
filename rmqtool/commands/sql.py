"""`rmqtool sql STORE... "select ..."`: SQL over stores, which read only what the statement needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import click

from rmqtool.base.errors import Exit, RmqtoolError, UsageError
from rmqtool.base.numbers import byte_size
from rmqtool.base.paths import is_remote
from rmqtool.commands import shared_options as shared
from rmqtool.commands.options import (
    OnStores,
    argument,
    command,
    conf_option,
    flag,
    jobs_option,
    master_option,
    option,
    size_of_at_least,
)
from rmqtool.commands.writing import check_place, unwritable
from rmqtool.show.output import Style, note, terminal_width, write_document, write_error, write_text
from rmqtool.show.pager import begin_paging, end_paging
from rmqtool.show.progress import job_progress

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtool.scan.redaction import Redaction
    from rmqtool.show.sql import Form, RowWriter
    from rmqtool.spark.database import SparkDatabase
    from rmqtool.sql.engine import Answer, Database, Limits
    from rmqtool.sql.tables import Opening, Reading, Trusted
    from rmqtool.store.store import NamedStore

_ON_TERMINAL = 1000  # rows
_MIB = 1 << 20
_MEMORY, _LEAST_MEMORY = 512 * _MIB, 64 * _MIB  # of the engine
_TEMPORARY = 4096 * _MIB
_STDIN = "-"
_LOCAL_SPARK = {"spark.driver.memory": "2g"}  # the JVM sorts and joins


@dataclass(frozen=True, kw_only=True)
class SqlOptions(OnStores):
    """What was asked for."""

    stores_and_sql: tuple[str, ...] = argument("STORE... [SQL]", shared.StoreWord(), nargs=-1, required=True)
    file: str | None = option("Take the statement from PATH; - is standard input.", metavar="PATH")
    form: Form | None = option(
        "How rows are written. Default: a table on a terminal, else csv.",
        "--format", type=click.Choice(["table", "csv", "ndjson", "parquet"]),
    )  # fmt: skip
    output: Path | None = shared.output_option(
        "Write the rows to a new file.", "FILE", click.Path(path_type=Path, dir_okay=False)
    )
    limit: int | None = option(
        f"Show at most this many rows. Default on a terminal: {_ON_TERMINAL}.", type=click.IntRange(min=0), metavar="N"
    )
    explain: bool = flag("Show which tables, columns and parts would be read; read nothing.")
    tables: bool = flag("Show the tables and views with their columns.")
    columns: tuple[str, ...] = option(
        "Add a column to messages, such as 'body.cents:int as cents' or properties.NAME. Repeatable.",
        "--column", multiple=True, metavar="COLUMN",
    )  # fmt: skip
    include: tuple[str, ...] = shared.include_option()
    tiered_path: Path | None = shared.tiered_path_option()
    on_damage: Literal["skip", "fail"] = option(
        "Skip damaged parts, with a warning; or stop there.", type=click.Choice(["skip", "fail"]), default="skip"
    )
    trust: tuple[Trusted, ...] = option(
        "clock: trust that no broker's clock went back; conditions on store_timestamp then skip files. index: trust "
        "that it has all messages; conditions on keys then read only these.",
        multiple=True, type=click.Choice(["clock", "index"]), metavar="WHAT",
    )  # fmt: skip
    memory: int | None = shared.memory_option()
    temporary: Path | None = option(
        "Directory for temporary files. Default: the system's.",
        "--temp", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR",
    )  # fmt: skip
    temporary_size: int | None = option(
        "Limit for temporary files. Default: 4 GiB.", "--temp-size", callback=size_of_at_least(_MIB), metavar="SIZE"
    )
    threads: int = option("Threads for sorts and joins.", type=click.IntRange(1, 64), default=1, metavar="N")
    jobs: int | None = jobs_option(
        "one for each GiB that is read, up to 8 and all cores; 1 where a broker runs, and with --memory"
    )
    engine: Literal["duckdb", "spark"] = option(
        "DuckDB in this process, or Spark, for stores that are too large for one machine.",
        type=click.Choice(["duckdb", "spark"]), default="duckdb",
    )  # fmt: skip
    master: str | None = master_option()
    conf: dict[str, str] = conf_option()
    redaction: Redaction | None = shared.redact_options()

    def require_consistent(self) -> None:
        """Raise UsageError for options that do not fit the engine."""
        if self.engine == "spark":
            given = self.words("memory", "temporary", "temporary_size", "threads", "jobs", "trust", "limit_rate")
            if given:
                raise UsageError(f"{given[0]} is for --engine duckdb: --conf gives settings of Spark")
        elif self.master or self.conf:
            raise UsageError("--master and --conf are for --engine spark")

    @property
    def statement(self) -> str | None:
        """The statement on the command line: the last word, where it is no store, as it has blanks."""
        last = self.stores_and_sql[-1]
        is_statement = self.file is None and len(self.stores_and_sql) > 1 and len(last.split()) > 1
        return last if is_statement and not os.path.exists(last) else None

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores."""
        return self.stores_and_sql if self.statement is None else self.stores_and_sql[:-1]

    @property
    def named(self) -> str | None:
        """The store, where there is one."""
        return self.stores[0] if len(self.stores) == 1 else None

    @property
    def limits(self) -> Limits:
        """What the engine may take."""
        from rmqtool.sql.engine import Limits

        memory = _MEMORY if self.memory is None else self.memory
        if memory < _LEAST_MEMORY:
            raise UsageError(
                f"--memory {byte_size(memory)} is too little: at least {byte_size(_LEAST_MEMORY)} are needed"
            )
        return Limits(memory, self.temporary, self.temporary_size or _TEMPORARY, self.threads)


@command(
    "sql",
    SqlOptions,
    (
        "rmqtool sql /data/rocketmq/store --tables",
        'rmqtool sql /data/rocketmq/store \\\n    "select topic, count(*) from messages group by all"',
        "rmqtool sql /data/rocketmq/store \\\n    \"from unread where group_name = 'billing' limit 10\"",
        'rmqtool sql /data/rocketmq/store "from hours order by bytes desc" \\\n    --format ndjson',
        "rmqtool sql /data/rocketmq/store \\\n    \"select * from messages where tags = 'web'\" --explain",
        "rmqtool sql '/brokers/*/store' \\\n    \"select group_name, sum(lag) from groups group by all\"",
        "rmqtool sql '/brokers/*/store' --engine spark \\\n    --master spark://master:7077 'select * from hours'",
    ),
    {
        Exit.OK: "answered, with rows or without",
        Exit.USAGE: "wrong options, or a statement that is wrong or does more than read",
        Exit.LOSSY: "answered, but something is damaged or could not be read",
        Exit.FAILED: "the store cannot be read, or the engine needs more than its limits",
    },
)
def sql(style: Style, given: SqlOptions) -> Exit:
    """Query stores with SQL.

    The contents of a store are tables: messages, keys, queues, groups, index, and more. STORE is a directory that
    broker.conf calls storePathRootDir, or its URI (s3://, hdfs://, ...), NAME=STORE, or a quoted pattern of such
    directories; with several stores each table has a column `store`. SQL is one read-only statement of DuckDB, or of
    Spark, in quotes; without it, it is read from standard input. Only data that the statement needs is read. Nothing
    in the store is changed.
    """
    from rmqtool.store.store import open_stores
    from rmqtool.store.tiered import with_tier

    given.require_consistent()
    if style.json and (given.form or given.output):
        raise UsageError(
            "--json prints one document: it cannot be combined with --format or --output", hint="--format ndjson"
        )
    stores = open_stores(given.stores, with_tier(given.broker_conf, given.tiered_path))
    form = _form_of(given)
    if given.output is not None:
        _check_output(given.output, stores)
    with _database(given, stores) as database:
        if given.tables:
            return _show_tables(style, database)
        if given.statement is None and given.file is None and sys.stdin.isatty():
            if given.output is not None or style.json:
                raise UsageError("there is no statement", hint='rmqtool sql STORE "from messages limit 10"')
            return _converse(style, given, database)
        return _answer(style, given, database, form, _statement(given))


def _answer(style: Style, given: SqlOptions, database: Database | SparkDatabase, form: Form, statement: str) -> Exit:
    """Show the answer to a statement, and what was damaged or not read for it."""
    from rmqtool.show.sql import notes_on

    reading, document = database.reading, dict[str, Any]()
    with job_progress(style, "reading") as progress:
        reading.begin(progress)
        answer = database.ask(statement)
        if given.explain:
            return _explain(style, answer)
        if style.json:
            document = _document(given, answer)
        else:
            _write(style, given, form, answer)
    status = Exit.LOSSY if reading.is_lossy else Exit.OK
    if style.json:
        write_document(style, "sql", document, status=status)
    for text in notes_on(reading):
        note(text)
    return status


def _converse(style: Style, given: SqlOptions, database: Database | SparkDatabase) -> Exit:
    """Answer statements that somebody types, each ended by a semicolon, until the input ends."""
    with suppress(ImportError):
        import readline  # noqa: F401 - gives input() lines that can be edited, and those before

    form: Form = given.form or "table"
    if not style.quiet:
        note("a statement ends with ; and .tables, .format FORM and .quit are commands")
    typed: list[str] = []
    while True:
        try:
            line = input("   ...> " if typed else "   sql> ")
            words = [] if typed else line.split()
            if words and words[0].startswith("."):
                if words[0] == ".quit":
                    return Exit.OK
                form = _command(style, database, words, form)
                continue
            typed += [line] if typed or line.strip() else []
            if typed and line.rstrip().endswith(";"):
                statement, typed = "\n".join(typed), []
                _answer(style, given, database, form, statement)
        except EOFError:
            write_text("\n")
            return Exit.OK
        except KeyboardInterrupt:  # ends what is typed or answered, and not all
            typed = []
            write_text("\n")
        except RmqtoolError as error:
            write_error(style, "sql", error)
        finally:
            end_paging()
            sys.stdout.flush()


def _command(style: Style, database: Database | SparkDatabase, words: list[str], form: Form) -> Form:
    """Do one of the commands beside statements; the form of rows from now on."""
    match words:
        case [".tables"]:
            _show_tables(style, database)
        case [".format", "table" | "csv" | "ndjson" as chosen]:
            return chosen
        case _:
            raise UsageError(f"{' '.join(words)} is not a command", hint=".tables, .format table, csv or ndjson, .quit")
    return form


def _database(given: SqlOptions, stores: list[NamedStore]) -> AbstractContextManager[Database | SparkDatabase]:
    """The engine that answers."""
    from rmqtool.sql.tables import Opening, Reading
    from rmqtool.store.message_reader import more_columns
    from rmqtool.store.store import may_be_several

    query = replace(more_columns(given.columns), include=given.include, redaction=given.redaction,
                    bytes_per_second=given.bytes_per_second)  # fmt: skip
    opening = Opening(
        tuple(each.absolute for each in stores) if given.engine == "spark" else tuple(stores),
        query,
        given.broker_version,
        with_store=len(stores) > 1 or any(map(may_be_several, given.stores)),  # whether a pattern fits one store or two
        fails=given.on_damage == "fail",
        trusts=frozenset(given.trust),
    )
    reading = Reading(fails=opening.fails, is_dry=given.explain)
    if given.engine == "spark":
        return _on_spark(given, opening, reading)
    from rmqtool.sql.engine import Database

    is_held = given.memory is not None or given.limit_rate is not None
    jobs = shared.processes_for(given.jobs or (1 if is_held else None), *(each.store.root for each in stores))
    return Database(opening.opened(reading, given.limit_rate, jobs), given.limits)


@contextmanager
def _on_spark(given: SqlOptions, opening: Opening, reading: Reading) -> Iterator[SparkDatabase]:
    from rmqtool.spark.database import SparkDatabase
    from rmqtool.spark.session import spark_context

    settings = {**({} if given.master else _LOCAL_SPARK), **given.conf}
    with spark_context(given.master, settings) as context, SparkDatabase(context, opening, reading) as database:
        yield database


def _statement(given: SqlOptions) -> str:
    """The statement: on the command line, in a file, or on standard input."""
    if given.statement is not None:
        return given.statement
    if given.file not in (None, _STDIN):
        try:
            return Path(str(given.file)).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise UsageError(f"the statement cannot be read: {reason}", file=given.file) from error
    return sys.stdin.read()


def _form_of(given: SqlOptions) -> Form:
    if given.form == "parquet" and given.output is None:
        raise UsageError("--format parquet needs --output FILE")
    if given.form is not None:
        return given.form
    return "table" if given.output is None and sys.stdout.isatty() else "csv"


def _check_output(path: Path, stores: list[NamedStore]) -> None:
    """Raise UsageError where the file is there, or would be in a store."""
    if path.exists():
        raise UsageError("the file already exists", file=path, hint="give --output a new file")
    for named in stores:
        if not is_remote(named.store.root):
            check_place(path, named.store)


def _document(given: SqlOptions, answer: Answer) -> dict[str, Any]:
    """All rows as one document, in memory."""
    from io import BytesIO

    from rmqtool.show.sql import TextWriter, rows_as_json

    schema, lines = _named_schema(answer, "ndjson"), BytesIO()
    writer = TextWriter(lines, schema, "ndjson")
    _take(answer, schema, writer, given.limit)
    return rows_as_json(schema, lines.getvalue())


def _write(style: Style, given: SqlOptions, form: Form, answer: Answer) -> None:
    """Write the rows, as many as are wanted; say where there are more."""
    schema = _named_schema(answer, form)
    on_terminal = form == "table" and given.output is None and sys.stdout.isatty()
    limit = _ON_TERMINAL if given.limit is None and on_terminal else given.limit
    if on_terminal:
        begin_paging(style)
    with _writer(style, given, form, schema) as writer:
        is_all = _take(answer, schema, writer, limit)
    if not is_all and not style.quiet:
        note(f"there are more than these {limit} rows" + (": --limit shows more" if given.limit is None else ""))


def _take(answer: Answer, schema: pa.Schema, writer: RowWriter, limit: int | None) -> bool:
    """Write the rows, at most `limit`; whether these are all."""
    left, is_all = limit, True
    for batch in answer.batches():
        rows = batch.rename_columns(schema.names)
        is_all = left is None or len(rows) <= left
        writer.add(rows if is_all else rows.slice(0, left))
        if not is_all:
            break
        left = None if left is None else left - len(rows)
    writer.close()
    return is_all


def _named_schema(answer: Answer, form: Form) -> pa.Schema:
    """The columns of the rows; raises UsageError for equal names, which get numbers in a table."""
    import pyarrow as pa

    from rmqtool.show.sql import unequal_names

    names = list(answer.schema.names)
    if len(set(names)) < len(names) and form != "table":
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"two columns are called {twice}", hint=f"give one another name: {twice} as other")
    fields = zip(answer.schema, unequal_names(names), strict=True)
    return pa.schema([field.with_name(name) for field, name in fields])


@contextmanager
def _writer(style: Style, given: SqlOptions, form: Form, schema: pa.Schema) -> Iterator[RowWriter]:
    """What writes the rows; a file is there when all are in it."""
    from rmqtool.base.new_files import whole_file
    from rmqtool.show.sql import ParquetWriter, TextWriter

    with ExitStack() as stack:
        if given.output is None:
            yield TextWriter(sys.stdout.buffer, schema, form, width=terminal_width(), int64=style.int64)
            return
        try:
            file: IO[bytes] = stack.enter_context(whole_file(given.output.resolve()))
            if form == "parquet":
                yield ParquetWriter(file, schema)
            else:
                yield TextWriter(file, schema, form, int64=style.int64)
            stack.close()
        except OSError as error:
            raise unwritable(given.output, error) from error


def _show_tables(style: Style, database: Database | SparkDatabase) -> Exit:
    from rmqtool.show.sql import result_of, show_columns

    if style.json:
        write_document(style, "sql", result_of(tables=database.columns()))
    else:
        begin_paging(style)
        show_columns(style.console(), database.columns())
    return Exit.OK


def _explain(style: Style, answer: Answer) -> Exit:
    from rmqtool.show.sql import result_of, show_scans

    for _ in answer.batches():  # without rows: tables are only asked what they would read
        pass
    scans = answer.reading.scans
    if style.json:
        write_document(style, "sql", result_of(scans=scans))
    else:
        show_scans(style.console(), scans)
    return Exit.OK
