"""Measures statements of SQL on a store, and on an export of it: `python -m tests.benchmarks.sql`.

Each runs in a process of its own, without its start and imports; times are those of the CPU, ratios those of one round.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import duckdb

import rmqtool
from rmqtool.sql.engine import Database, Limits
from rmqtool.sql.tables import Reading, Stores
from rmqtool.store.message_reader import Query
from tests.benchmarks.__main__ import GIB, MIB, size_in_bytes
from tests.benchmarks.logs import make_log
from tests.benchmarks.measure import Case, Run, measure_cases, use_one_core
from tests.export.exporting import export

STATEMENTS = {
    "messages by topic": "select topic, count(*) from messages group by all",
    "one unique key, with the size of its body": "select body_size from messages where unique_key = '{key}'",
    "bytes of bodies in 1.4 % of the time": "select sum(octet_length(body)) from messages "
    "where store_timestamp >= timestamptz '{begin}' and store_timestamp < timestamptz '{end}'",
    "the hosts that send the most": "select born_host, count(*) from messages group by all order by all desc limit 5",
    "unread messages of a group": "select count(*) from messages m join groups g on m.topic = g.topic "
    "and m.queue_id = g.queue_id and m.queue_offset >= g.committed",
    "bodies in the order of bodies, all rows": "select physical_offset, body from messages order by body",
}
"""What is measured, by its name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the log and an export of it, measure everything, print a table."""
    options = _parse(arguments)
    use_one_core()
    store = make_log(options.dir / f"sql-{options.size}", "A", options.size)
    _write_offsets(store)
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        exported = Path(folder, "out")
        values = _values(store)
        texts = {name: text.format(**values) for name, text in STATEMENTS.items()}
        [writing] = _measured({"export": partial(_export, exported)}, store, 1)
        print(f"an export: {writing.cpu_seconds:.1f} s CPU, {writing.peak_rss / MIB:.0f} MiB")
        print("| statement | on the store | memory | on an export | memory | ratio |\n|---|---|---|---|---|---|")
        for name, text in texts.items():
            both = {"store": partial(ask_store, text), "files": partial(ask_files, exported, text)}
            here, there = _measured(both, store, options.runs)
            ratio = here.cpu_seconds / max(there.cpu_seconds, 1e-3)
            print(f"| {name} | {here.cpu_seconds:.2f} s | {here.peak_rss / MIB:.0f} MiB | {there.cpu_seconds:.2f} s "
                  f"| {there.peak_rss / MIB:.0f} MiB | {ratio:.1f} |", flush=True)  # fmt: skip
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(tempfile.gettempdir()) / "rmqtool-benchmarks"
    parser.add_argument("--size", type=size_in_bytes, default=GIB, help="size of the log (default: 1GiB)")
    parser.add_argument("--dir", type=Path, default=default, help="where the log is kept (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each statement (default: %(default)s)")
    return parser.parse_args(arguments)


def _measured(cases: Mapping[str, Callable[[Path, Path], object]], store: Path, runs: int) -> list[Run]:
    """The better of the runs of each case."""
    found = measure_cases([Case(name, run) for name, run in cases.items()], store, runs)
    return [min(each, key=lambda run: run.cpu_seconds) for each in found]


def _write_offsets(store: Path) -> None:
    """A group that has consumed all but some messages of four topics."""
    with Database(_stores(store), Limits()) as database:
        text = "select topic, queue_id, max(queue_offset) as last from messages group by all order by all limit 24"
        rows = list(database.ask(text))
    table = dict[str, dict[str, int]]()
    for row in rows:
        table.setdefault(f"{row['topic']}@billing", {})[str(row["queue_id"])] = max(0, row["last"] - 100)
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def _values(store: Path) -> dict[str, str]:
    """What statements ask for: a key, and 1.4 % of the time, in the middle of the log."""
    with Database(_stores(store), Limits()) as database:
        [row] = database.ask(
            "select min(store_timestamp) as first, max(store_timestamp) - min(store_timestamp) as span, "
            "quantile_disc(unique_key, 0.5) as key, min(store_timestamp) + (max(store_timestamp) - "
            "min(store_timestamp)) / 2 as begin, min(store_timestamp) + (max(store_timestamp) - min(store_timestamp)) "
            "* 0.514 as stop from messages"
        )
    return {"key": row["key"], "begin": row["begin"].isoformat(), "end": row["stop"].isoformat()}


def _stores(path: Path) -> Stores:
    return Stores({"store": rmqtool.open(path).snapshot}, Query(), Reading())


def ask_store(statement: str, store: Path, _: Path) -> None:
    """Take all rows of a statement on a store."""
    with Database(_stores(store), Limits()) as database:
        for _batch in database.ask(statement).batches():
            pass


def ask_files(exported: Path, statement: str, store: Path, _: Path) -> None:
    """Take all rows of the same statement on exported files."""
    with duckdb.connect(":memory:", config={"memory_limit": "512MiB", "threads": "1"}) as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.execute("set enable_progress_bar = false")
        files = f"read_parquet('{exported}/**/*.parquet')"
        connection.execute(f"create view messages as from {files}")
        if "groups" in statement:
            offsets = json.loads((store / "config" / "consumerOffset.json").read_text())["offsetTable"]
            rows = [(name.partition("@")[0], int(queue), offset) for name, queues in offsets.items()
                    for queue, offset in queues.items()]  # fmt: skip
            connection.execute("create table groups (topic varchar, queue_id int, committed bigint)")
            connection.executemany("insert into groups values (?, ?, ?)", rows)
        for _batch in connection.sql(statement).to_arrow_reader(1 << 11):
            pass


def _export(output: Path, store: Path, _: Path) -> None:
    shutil.rmtree(output, ignore_errors=True)
    export(store, output)


if __name__ == "__main__":
    raise SystemExit(main())
