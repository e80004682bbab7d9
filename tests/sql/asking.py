"""Ask stores by SQL, and by the same SQL what was exported of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import rmqtool
from rmqtool.scan.redaction import Redaction
from rmqtool.sql.engine import Database, Limits
from rmqtool.sql.log_tables import MESSAGE_COLUMNS
from rmqtool.sql.tables import Reading, Stores, Trusted
from rmqtool.store.message_reader import Query
from tests.building import LogBuilder
from tests.export.exporting import export

Rows = list[dict[str, Any]]


@dataclass
class Asked:
    """An engine over stores."""

    database: Database

    def __call__(self, statement: str) -> Rows:
        """The rows of a statement."""
        rows: Rows = self.table(statement).to_pylist()
        return rows

    def table(self, statement: str) -> pa.Table:
        """The same as Arrow; what was read before is forgotten."""
        self.reading.begin(lambda _done, _total: None)
        return self.database.ask(statement).to_arrow()

    @property
    def reading(self) -> Reading:
        """What happened while it read."""
        return self.database.reading


@contextmanager
def asking(
    *stores: Path,
    include: Sequence[str] = (),
    redaction: Redaction | None = None,
    fails: bool = False,
    is_dry: bool = False,
    trusts: Collection[Trusted] = (),
    tier: Path | None = None,
) -> Iterator[Asked]:
    """An engine over stores, named by their directories."""
    snapshots = {path.name: rmqtool.open(path, tiered_path=tier).snapshot for path in stores}
    query = Query(include=tuple(include), redaction=redaction)
    reading = Reading(fails=fails, is_dry=is_dry)
    with Database(Stores(snapshots, query, reading, len(stores) > 1, frozenset(trusts)), Limits()) as database:
        yield Asked(database)


@contextmanager
def asking_export(store: Path, output: Path) -> Iterator[Any]:
    """A function that asks an export of a store, whose rows are `messages`."""
    export(store, output, columns=MESSAGE_COLUMNS, include=())
    with ExitStack() as stack:
        connection = stack.enter_context(duckdb.connect(":memory:"))
        connection.execute("set TimeZone = 'UTC'")
        connection.execute(f"create view messages as from read_parquet('{output}/**/*.parquet') where place = 'local'")
        yield lambda statement: connection.sql(statement).to_arrow_table().to_pylist()


def damaged_store(path: Path) -> Path:
    """A store with a record that is none."""
    log = LogBuilder()
    offsets = [log.add(topic="t", body=b"x" * 100) for _ in range(5)]
    store = log.write(path / "store")
    [file] = (store / "commitlog").iterdir()
    data = bytearray(file.read_bytes())
    data[offsets[2] : offsets[2] + 50] = b"\xff" * 50
    file.write_bytes(data)
    return store
