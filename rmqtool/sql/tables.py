"""A part of a store as a table that is read when a statement asks for it, and only what the statement needs of it.

The engine asks a `pyarrow.dataset.Dataset` for columns and hands it the filters that it can give away; those are not
compared again, so that a table applies them exactly. What a table knows of its parts before it reads them (the topic of
a queue, the physical offsets of a split) are Arrow expressions, too: Arrow itself decides which parts may be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from rmqtool.base.errors import EndingError, RmqtoolError
from rmqtool.base.files import RateLimit
from rmqtool.base.parallel import MAX_PARTS, Job, WorkerPool
from rmqtool.rules.versions import Version
from rmqtool.scan.redaction import Redaction
from rmqtool.scan.windows import constant_strings
from rmqtool.store.message_reader import STORE_COLUMN, TIMESTAMP, Query, to_timestamps
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import NamedStore

Expression: TypeAlias = Any
"""A `pyarrow.compute.Expression`, of which no types are known."""

Damaged = Literal["extent", "crc", "compressed", "trace"]
"""Of the log an extent, a body that lacks its CRC, one that cannot be decompressed, a record of a trace message."""

Trusted = Literal["clock", "index"]
"""What may be taken for right without reading all that proves it."""

ANYTHING = pc.scalar(True)
"""What is known of a part of which nothing is."""

_MOST_PARTS = 1000  # that guarantees are compared of: ten times as many take a second


@dataclass(frozen=True, eq=False)
class Asked:
    """What a statement asks of a table: `columns`, and the rows for which the `condition` is true, None for all."""

    columns: tuple[str, ...]
    condition: Expression | None = None
    compared: tuple[str, ...] = ()
    """The columns that the condition is about, in the order of the table."""

    @property
    def needed(self) -> tuple[str, ...]:
        """All columns that must be read."""
        return tuple(dict.fromkeys((*self.columns, *self.compared)))

    def of(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows and columns that were asked for, of a batch with all columns that are needed."""
        table = pa.Table.from_batches([batch])
        if self.condition is not None:
            table = table.filter(self.condition)
        yield from table.select(list(self.columns)).to_batches()


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a table: what is known of its rows, how many bytes are read for them, and how.

    `read` gives batches of just what was asked for, of stores that may have been opened in another process: a part can
    be pickled. `narrowed` makes it smaller by a condition.
    """

    guarantee: Expression
    size: int
    read: Callable[[Stores, Asked], Iterator[pa.RecordBatch]]
    narrowed: Callable[[Expression], Part] | None = None


@dataclass(frozen=True, eq=False)
class Scan:
    """One reading of a table in a statement, as it is explained."""

    table: str
    asked: Asked
    parts: tuple[Part, ...]
    of_parts: int
    of_bytes: int
    needed: tuple[str, ...]
    """All columns that are read, in the order of the table."""

    @property
    def bytes(self) -> int:
        """What is read at most."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True)
class Losses:
    """What a statement passed over: damage, values that do not fit, and what could not be read."""

    damage: Mapping[Damaged, tuple[int, str]]
    unfit: Mapping[str, tuple[int, str]]
    unread: Sequence[RmqtoolError]


@dataclass
class Reading:
    """What happens while a statement reads: progress, damage that is passed over, and the error that ended it.

    With `is_dry` nothing is read, and tables have no rows. `fails` lets the first damage end the statement. `texts` are
    the string literals of the statement; `trusted` is what an answer relies on.
    """

    progress: Callable[[int, int], None] = lambda _done, _total: None
    fails: bool = False
    is_dry: bool = False
    scans: list[Scan] = field(default_factory=list)
    done: int = 0
    damage: dict[Damaged, tuple[int, str]] = field(default_factory=dict)
    unfit: dict[str, tuple[int, str]] = field(default_factory=dict)
    unread: list[RmqtoolError] = field(default_factory=list)
    failed: BaseException | None = None
    texts: Sequence[str] = ()
    trusted: set[Trusted] = field(default_factory=set)

    @property
    def total(self) -> int:
        """Bytes of all that is read, or will be."""
        return sum(scan.bytes for scan in self.scans)

    @property
    def losses(self) -> Losses:
        """What was passed over, as another process is sent it."""
        return Losses(self.damage, self.unfit, self.unread)

    def add_losses(self, of: Losses) -> None:
        """Add what another process has passed over."""
        for what, (count, place) in of.damage.items():
            self.add_damage(what, place, count)
        for column, (count, place) in of.unfit.items():
            self.add_unfit(column, place, count)
        for error in of.unread:
            self.skip(error)

    @property
    def is_lossy(self) -> bool:
        """Whether something was damaged, did not fit its type, or was not read."""
        return bool(self.damage or self.unfit or self.unread)

    def begin(self, progress: Callable[[int, int], None]) -> None:
        """Forget the statement before."""
        self.progress, self.done, self.failed = progress, 0, None
        for kept in (self.scans, self.damage, self.unfit, self.unread, self.trusted):
            kept.clear()

    def add(self, size: int) -> None:
        """Note that so many bytes more were read."""
        self.done += size
        self.progress(self.done, self.total)

    def add_damage(self, what: Damaged, place: str, count: int = 1) -> None:
        """Count what is damaged; `place` is that of the first."""
        before, first = self.damage.get(what, (0, place))
        self.damage[what] = before + count, first

    def add_unfit(self, column: str, place: str, count: int) -> None:
        """Count values that do not fit the type of a column, and are null; `place` is that of the first."""
        before, first = self.unfit.get(column, (0, place))
        self.unfit[column] = before + count, first

    def skip(self, error: RmqtoolError) -> None:
        """Go on without what cannot be read; raises the error where nothing is passed over, or it ends a run."""
        if self.fails or isinstance(error, EndingError):
            raise error
        if str(error) not in map(str, self.unread):
            self.unread.append(error)


@dataclass(frozen=True, eq=False)
class Stores:
    """The stores by name, which of their messages are rows, and how they are read.

    `query` has its columns replaced by those that are asked for. `with_store` each table has a column of the store's
    name. `trusts` the clock: no broker's went back, so that a file holds no time later than the next begins; the index:
    it leads to all messages. `split_size` is that of the parts of a log, bytes, None for the usual one. Up to
    `processes` read a table, which open the stores by `opening`.
    """

    by_name: Mapping[str, Snapshot]
    query: Query
    reading: Reading
    with_store: bool = False
    trusts: frozenset[Trusted] = frozenset()
    split_size: int | None = None
    processes: int = 1
    opening: Opening | None = None

    @property
    def redaction(self) -> Redaction | None:
        """What is not shown."""
        return self.query.redaction


@dataclass(frozen=True)
class Opening:
    """How stores are opened to be asked, here or in another process. Small, immutable and picklable."""

    stores: tuple[NamedStore, ...]
    query: Query
    version: Version | None = None
    with_store: bool = False
    fails: bool = False
    trusts: frozenset[Trusted] = frozenset()
    split_size: int | None = None

    def opened(self, reading: Reading, limit: RateLimit | None = None, processes: int = 1) -> Stores:
        """The stores; nothing is read of them before a table is."""
        by_name = {each.name: Snapshot(each.store, self.version, limit) for each in self.stores}
        return Stores(
            by_name, self.query, reading, self.with_store, self.trusts, self.split_size, processes, opening=self
        )


class Table(ds.Dataset):  # type: ignore[misc]
    """A table of one or several stores; the engine calls `scanner` and nothing else."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        parts: Callable[[], Iterable[Part]],
        of: Stores,
        find: Callable[[Expression], list[Part] | None] = lambda _: None,
    ) -> None:
        """`parts` lists them when the table is first read; `find` may know fewer for a condition, or None.

        Never calls the base class, which forbids instances.
        """
        self.name = name
        self._find = find
        self._schema = schema
        self._list_parts = parts
        self._of = of
        self._reading = of.reading

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns; the first one is cheap to read: that of ``count(*)``."""
        return self._schema

    @cached_property
    def parts(self) -> list[Part]:
        """All of it, listed once."""
        return list(self._list_parts())

    def _parts_for(self, condition: Expression) -> list[Part]:
        found = self._find(condition)
        if found is not None:
            return found
        left = parts_left(self.parts, self._schema, condition)
        return [part.narrowed(condition) if part.narrowed else part for part in left]

    def scanner(self, columns: Sequence[str] | None = None, filter: Expression | None = None, **_: Any) -> _Scanner:  # noqa: A002
        """What the engine pulls batches from."""
        try:
            names = tuple(self._schema.names if columns is None else columns)
            asked = Asked(names, filter, () if filter is None else compared_by(filter, self._schema))
            parts = self.parts if filter is None else self._parts_for(filter)
            whole = sum(part.size for part in self.parts)
            needed = tuple(name for name in self._schema.names if name in asked.needed)
            scan = Scan(self.name, asked, tuple(parts), len(self.parts), whole, needed)
        except BaseException as error:
            self._reading.failed = error
            raise
        self._reading.scans.append(scan)
        return _Scanner(self, scan, self._of)


class _Scanner:
    """One reading of a table."""

    def __init__(self, table: Table, scan: Scan, of: Stores) -> None:
        self._scan = scan
        self._of = of
        self._reading = of.reading
        self.projected_schema = pa.schema([table.schema.field(name) for name in scan.asked.columns])

    def to_reader(self) -> pa.RecordBatchReader:
        """The batches, read when they are pulled."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """The batches; an error reaches the engine as text, so that it is kept for whoever has asked the engine."""
        parts = () if self._reading.is_dry else self._scan.parts
        processes = min(self._of.processes, len(parts), self._scan.bytes // _WORTH_A_PROCESS)
        try:
            if processes > 1 and self._of.opening is not None:
                yield from self._from_processes(processes, self._of.opening)
                return
            for part in parts:
                yield from rows_of(self._of, part, self._scan.asked)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._reading.failed = error
            raise

    def _from_processes(self, processes: int, opening: Opening) -> Iterator[pa.RecordBatch]:
        """The batches of all parts in their order, which this process and others read."""
        parts, asked = self._scan.parts, self._scan.asked
        size = -(-len(parts) // MAX_PARTS)
        groups = [parts[start : start + size] for start in range(0, len(parts), size)]
        own = _Reader(self._of, groups, asked)
        with WorkerPool[_Rows](processes - 1, may_copy=False) as pool:  # the engine has threads of its own
            pool.begin(partial(_reader_of, opening, groups, asked), range(len(groups)), own)
            for step in pool.steps_in_order(_AHEAD):
                if isinstance(step.result, Losses):
                    self._reading.add_losses(step.result)
                elif step.result is not None:
                    yield pa.ipc.read_record_batch(step.result, self.projected_schema)
                if step.worker:
                    self._reading.add(step.size)


_WORTH_A_PROCESS = 1 << 30  # bytes of a table; another process takes half a second to begin
_AHEAD = 64 << 20  # of this process's own rows that others have to wait for, bytes of the log

_Rows: TypeAlias = "pa.Buffer | Losses"
"""A record batch as Arrow sends it, or what a part has passed over."""


class _Reader(Job[_Rows]):
    """Reads groups of parts; what another process passes over is told after each group."""

    def __init__(self, of: Stores, groups: Sequence[Sequence[Part]], asked: Asked, *, is_here: bool = True) -> None:
        self._of = of
        self._groups = groups
        self._asked = asked
        self._is_here = is_here

    def do(self, part: int) -> Iterator[tuple[int, _Rows | None]]:
        reading = self._of.reading
        done = reading.done
        for each in self._groups[part]:
            for batch in rows_of(self._of, each, self._asked):
                yield reading.done - done, batch.serialize()
                done = reading.done
        yield reading.done - done, None if self._is_here else reading.losses
        if not self._is_here:
            reading.begin(reading.progress)


def _reader_of(opening: Opening, groups: Sequence[Sequence[Part]], asked: Asked) -> _Reader:
    """The same in another process, which opens the stores itself."""
    return _Reader(opening.opened(Reading(fails=opening.fails)), groups, asked, is_here=False)


def rows_of(of: Stores, part: Part, asked: Asked) -> Iterator[pa.RecordBatch]:
    """What is asked of a part; what cannot be read is passed over, or raises RmqtoolError."""
    try:
        yield from part.read(of, asked)
    except RmqtoolError as error:
        of.reading.skip(error)


def compared_by(condition: Expression, schema: pa.Schema) -> tuple[str, ...]:
    """The columns that a condition is about: those without which it cannot be understood."""
    empty = schema.empty_table()

    def is_needed(name: str) -> bool:
        try:
            empty.drop_columns([name]).filter(condition)
        except pa.ArrowInvalid:
            return True
        return False

    return tuple(filter(is_needed, schema.names))


def parts_left(parts: Sequence[Part], schema: pa.Schema, condition: Expression) -> list[Part]:
    """The parts that may have rows for which a condition is true, by what is known of them."""
    left = possible([part.guarantee for part in parts[:_MOST_PARTS]], schema, condition)
    return [*(parts[number] for number in left), *parts[_MOST_PARTS:]]


def possible(guarantees: Sequence[Expression], schema: pa.Schema, condition: Expression) -> list[int]:
    """The numbers of the guarantees with which a condition may be true; nothing is read."""
    system, form = LocalFileSystem(), ds.IpcFileFormat()
    fragments = [form.make_fragment(str(number), system, guarantee) for number, guarantee in enumerate(guarantees)]
    files = ds.FileSystemDataset(fragments, schema, form, system)
    return sorted(int(fragment.path) for fragment in files.get_fragments(condition))


def implied(column: str, texts: Iterable[str], schema: pa.Schema, condition: Expression) -> list[str] | None:
    """Those of some texts one of which a column must be for a condition to be true; None where it may be another."""
    ordered = sorted({*texts}, key=str.encode)[: _MOST_PARTS // 4]
    field = pc.field(column)
    if not ordered:
        return None
    between = [(field > low) & (field < high) for low, high in pairwise(ordered)]
    others = [field.is_null(), field < ordered[0], *between, field > ordered[-1]]
    if possible(others, schema, condition):
        return None
    return [ordered[number] for number in possible([field == each for each in ordered], schema, condition)]


def whole_part(batches: Callable[[Stores], Iterable[pa.RecordBatch]], size: int = 0) -> Part:
    """The one part of a table of which nothing is known before it is read; its batches have all columns."""
    return Part(ANYTHING, size, partial(_chosen, batches))


def _chosen(
    batches: Callable[[Stores], Iterable[pa.RecordBatch]], of: Stores, asked: Asked
) -> Iterator[pa.RecordBatch]:
    for batch in batches(of):
        yield from asked.of(batch)


def of_store(part: Part, store: str, first: str) -> Part:
    """A part of the table of several stores, in which a column names the `store`; `first` is another."""
    known = part.guarantee & (pc.field(STORE_COLUMN) == store)
    return replace(part, guarantee=known, read=partial(_named_rows, part.read, store, first), narrowed=None)


def _named_rows(
    read: Callable[[Stores, Asked], Iterator[pa.RecordBatch]], store: str, first: str, of: Stores, asked: Asked
) -> Iterator[pa.RecordBatch]:
    own = tuple(name for name in asked.needed if name != STORE_COLUMN)
    for batch in read(of, Asked(own or (first,))):
        names = constant_strings(store, batch.num_rows)
        columns = [names if name == STORE_COLUMN else batch.column(name) for name in asked.needed]
        yield from asked.of(pa.RecordBatch.from_arrays(columns, names=list(asked.needed)))


def with_store(schema: pa.Schema) -> pa.Schema:
    """The columns of the table of several stores."""
    return schema.append(pa.field(STORE_COLUMN, pa.string()))


def times(milliseconds: pa.Array) -> pa.Array:
    """Epoch ms as timestamps; null stays, and is what 64 bits do not hold."""
    if not milliseconds.null_count:
        return to_timestamps(milliseconds)
    shown = to_timestamps(milliseconds.fill_null(0))
    return pc.if_else(milliseconds.is_valid(), shown, pa.scalar(None, TIMESTAMP))
