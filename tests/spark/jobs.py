"""What the tests have sessions do; each runs in the session's process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.spark.database import SparkDatabase
from rmqtool.sql.tables import Opening, Reading
from rmqtool.store.message_reader import Query
from rmqtool.store.store import open_stores
from tests.spark.sessions import EXECUTOR, SECONDS, descendants

Rows = list[dict[str, Any]]


def read(session: Any, paths: Any, options: Mapping[str, str], schema: str | None = None, where: str = "") -> Rows:
    """The rows of the format rocketmq, as plain values, in the order of the log."""
    reader = session.read.format("rocketmq").options(**options)
    frame = (reader.schema(schema) if schema else reader).load(paths)
    return _plain(frame.where(where) if where else frame)


def read_parquet(session: Any, output: str) -> Rows:
    """The rows of exported files."""
    return _plain(session.read.parquet(output))


def parquet_types(session: Any, output: str) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in session.read.parquet(output).schema.fields}


def source_types(session: Any, path: str) -> dict[str, str]:
    frame = session.read.format("rocketmq").load(path)
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def sql(session: Any, *statements: str) -> list[tuple[Any, ...]]:
    """The rows of the last of some statements."""
    frame = None
    for statement in statements:
        frame = session.sql(statement)
    return [tuple(row) for row in frame.collect()] if frame is not None else []


def statements(
    session: Any, path: str, options: Mapping[str, str], texts: Sequence[str], pushes: str, cached: bool
) -> list[list[Any]]:
    """The first column that each statement gives, on one view `v` of the store."""
    _pushing(session, pushes)
    session.read.format("rocketmq").options(**options).load(path).createOrReplaceTempView("v")
    if cached:
        session.sql("cache table v")
    try:
        return [[row[0] for row in session.sql(text).collect()] for text in texts]
    finally:
        session.catalog.clearCache()


def grown(session: Any, path: str, schema: str | None, images: Mapping[int, bytes], pushes: str) -> list[int]:
    """Rows of a frame before and after its log becomes `images`, half of those at its start, all; and loaded again."""
    _pushing(session, pushes)

    def load() -> Any:
        reader = session.read.format("rocketmq")
        return (reader.schema(schema) if schema else reader).load(path)

    frame = load()
    before = frame.count()
    offsets = sorted(row.physical_offset for row in frame.collect())
    unread = load()
    become(Path(path), images)
    half = frame.where(f"physical_offset < {offsets[len(offsets) // 2]}").count()
    return [before, unread.count(), half, frame.count(), load().count()]


def _pushing(session: Any, pushes: str) -> None:
    """Whether Spark offers its filters to data sources; before 4.1 it does not know how."""
    session.conf.set("spark.sql.python.filterPushdown.enabled", pushes)


def limited(session: Any, path: str, count: int) -> int:
    return len(session.read.format("rocketmq").load(path).limit(count).collect())


def register_and_read(session: Any, path: str, options: Mapping[str, str]) -> Rows:
    """The same where nothing is installed."""
    from rmqtool.spark import register

    register(session)
    register(session)
    return read(session, path, options)


def stream(session: Any, path: str, folder: str, options: Mapping[str, str]) -> tuple[list[int], Rows]:
    """Run a stream until all that is there is read; rows of each part, and all rows that the sink holds by now."""
    from rmqtool.spark import register

    register(session)
    source = session.readStream.format("rocketmq").options(**options).load(path)
    writer = source.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    query = _started(writer.option("path", f"{folder}/sink").trigger(availableNow=True), _wait_for_end)
    counts = [part["numInputRows"] for part in query.recentProgress]
    has_rows = any(Path(folder, "sink").glob("*.parquet"))
    return counts, _plain(session.read.parquet(f"{folder}/sink")) if has_rows else []


def _started(writer: Any, wait: Callable[[Any], object]) -> Any:
    """The query of a stream, for which `wait` has waited.

    Spark gives a new process of Python ten seconds to start, which a machine that does much else may not have; the
    checkpoint makes another run the same.
    """
    from pyspark.errors import StreamingQueryException

    for left in reversed(range(8)):
        query = writer.start()
        try:
            wait(query)
        except StreamingQueryException as error:
            if not left or "failed to connect back" not in str(error):
                raise
        else:
            break
    return query


def _wait_for_end(query: Any) -> None:
    if not query.awaitTermination(SECONDS):
        raise TimeoutError(f"the stream did not end: {query.status}")


def follow(session: Any, path: str, folder: str, steps: Sequence[Mapping[int, bytes]]) -> list[int]:
    """Run a stream while its log becomes each of `steps`, as a broker makes it; how many rows there are after each."""
    source = session.readStream.format("rocketmq").option("columns", "physical_offset").load(path)
    writer = source.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    query = _started(writer.option("path", f"{folder}/sink"), lambda query: query.processAllAvailable())
    counts = []
    try:
        for images in steps:
            become(Path(path), images)
            query.processAllAvailable()
            counts.append(session.read.parquet(f"{folder}/sink").count())
    finally:
        query.stop()
    return counts


def read_and_kill(session: Any, path: str, options: Mapping[str, str], folder: str) -> list[int]:
    """Physical offsets of all rows, though an executor is killed in mid-job; `folder` gets a file for each attempt."""
    from pyspark import InheritableThread

    from rmqtool.spark import register

    def slowly(rows: Iterable[Any]) -> Iterator[int]:
        from pyspark import TaskContext

        task: Any = TaskContext.get()
        for row in rows:
            Path(folder, f"{task.partitionId()}-{task.attemptNumber()}").touch()
            time.sleep(0.02)
            yield row.physical_offset

    register(session)
    found: list[int] = []
    rows = session.read.format("rocketmq").options(**options).load(path).select("physical_offset").rdd
    thread = InheritableThread(target=lambda: found.extend(rows.mapPartitions(slowly).collect()), daemon=True)
    thread.start()
    while thread.is_alive() and len(list(Path(folder).iterdir())) < 2:
        time.sleep(0.05)
    executors = [pid for pid, command in descendants(os.getpid()).items() if EXECUTOR in command]
    os.kill(min(executors), signal.SIGKILL)
    thread.join(SECONDS)
    return found


def become(store: Path, images: Mapping[int, bytes]) -> None:
    """Write files of a log that somebody reads: in place, a new one with all its size at once; remove the others."""
    for start, data in images.items():
        file = store / "commitlog" / f"{start:020d}"
        if not file.exists():
            file.with_name("new").write_bytes(bytes(len(data)))
            file.with_name("new").rename(file)
        with file.open("r+b") as opened:
            opened.write(data)
    for file in (store / "commitlog").iterdir():
        if int(file.name) not in images:
            file.unlink()


def _plain(frame: Any) -> Rows:
    rows = [row.asDict() for row in frame.collect()]
    return sorted(rows, key=lambda row: (row.get("store", ""), row.get("physical_offset", 0)))


def asked(
    session: Any, paths: Sequence[str], texts: Sequence[str], fails: bool = False, is_dry: bool = False
) -> list[tuple[Any, dict[str, tuple[str, ...]], dict[str, int]]]:
    """The rows of each statement, or its error, the columns that were read, and how much was damaged."""
    opening = Opening(tuple(open_stores(paths, BrokerConf())), Query(), with_store=len(paths) > 1, fails=fails)
    found: list[tuple[Any, dict[str, tuple[str, ...]], dict[str, int]]] = []
    with SparkDatabase(session.sparkContext, opening, Reading(fails=fails, is_dry=is_dry)) as database:
        reading = database.reading
        for text in texts:
            reading.begin(lambda _done, _total: None)
            rows: Any
            try:
                rows = database.ask(text).to_arrow().to_pylist()
            except RmqtoolError as error:
                rows = f"{type(error).__name__}: {error}, {error.hint}"
            damage = {str(what): count for what, (count, _) in reading.damage.items()}
            found.append((rows, {scan.table: scan.needed for scan in reading.scans}, damage))
    return found


def table(session: Any, paths: Sequence[str], name: str, options: Mapping[str, str], schema: str | None = None) -> Rows:
    """The rows of a table of the data source."""
    reader = session.read.format("rocketmq").options(table=name, **options)
    frame = (reader.schema(schema) if schema else reader).load(list(paths))
    rows: Rows = frame.toArrow().to_pylist()
    return rows
