"""The messages in a DLedger log, each with its Raft index and term, and the units of its index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.formats import dledger
from rmqtool.inspect.commit_log import log_rows
from rmqtool.inspect.file_kind import require_kind
from rmqtool.inspect.locate import Location
from rmqtool.inspect.options import ListingOptions
from rmqtool.inspect.unit_blocks import all_of, hex_of, read_units
from rmqtool.scan.block import Block, Positions
from rmqtool.scan.filters import Mask
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import MessageShape, message_rows
from rmqtool.scan.rows import Rows, make_rows, names_taken
from rmqtool.scan.text import constant_strings
from rmqtool.store.dledger_node import committed_index
from rmqtool.store.store import DLEDGER_DATA

_INDEX_KINDS = ("empty", "dledger_index_unit")
RAFT_COLUMNS = ("dledger_index", "dledger_term", "dledger_committed")


def list_entries(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The messages of all entries, with blanks and damage between them; offsets are those of the messages."""
    committed = _committed(location.files[0].path) if location.files else None
    yield from log_rows(location.files, location, options, partial(_entry_rows, committed))


def list_dledger_index(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The units of the index: where the entry of each Raft index stands."""
    for mapped in reversed(location.files) if options.reverse else location.files:
        require_kind(mapped.path, location.kind)
        for block in read_units(mapped, dledger.INDEX_DTYPE, options.reading, reverse=options.reverse):
            columns: dict[str, Any] = {
                "file": constant_strings(location.relative(mapped.path), len(block.units)),
                "number": block.indices + mapped.start_offset // dledger.INDEX_UNIT_SIZE,
                **{name: block.units[name] for name in ("position", "size", "index", "term")},
            }
            if options.with_hex:
                columns["hex"] = hex_of(block.units)
            kinds = names_taken(_INDEX_KINDS, dledger.is_written(block.units).astype(np.int32))
            yield make_rows(kinds, columns).filter(_kept(location, block.units, options), reverse=options.reverse)


def _kept(location: Location, units: NDArray[np.void], options: ListingOptions) -> Mask:
    """Which units pass the filters: on the physical offset of their message, and on the message itself."""
    filters, is_written = options.filters, dledger.is_written(units)
    offsets = units["position"].astype(np.int64) + dledger.ENTRY_HEADER_SIZE
    masks: list[Any] = [is_written] if options.by_record else []
    if filters.start or filters.to_offset is not None:
        masks += [is_written, offsets >= filters.start, offsets < filters.stop]
    sizes = units["size"] - dledger.ENTRY_HEADER_SIZE
    return options.by_records(location.groups[0], all_of(masks, len(units)), offsets, sizes)


def _committed(data_file: Path) -> int | None:
    """The committed index beside a file of entries; None for one that lies elsewhere."""
    return committed_index(data_file.parent.parent) if data_file.parent.name == DLEDGER_DATA else None


def _entry_rows(committed: int | None, frames: RecordRun, file: str, shape: MessageShape) -> Iterator[Rows]:
    """Rows of messages with Raft index and term from the entries' headers."""
    done = 0
    for rows in message_rows(frames, file, shape):
        yield _with_raft(rows, frames.block, frames.positions[done : done + len(rows)], committed)
        done += len(rows)


def _with_raft(rows: Rows, block: Block, positions: Positions, committed: int | None) -> Rows:
    headers = block.gather(dledger.ENTRY_DTYPE, positions - dledger.ENTRY_HEADER_SIZE)
    indices, terms = (pa.array(headers[name].astype(np.int64)) for name in ("index", "term"))
    is_committed = pa.nulls(len(rows), pa.bool_()) if committed is None else pc.less_equal(indices, committed)
    batch = rows.batch
    for name, column in zip(RAFT_COLUMNS, (indices, terms, is_committed), strict=True):
        batch = batch.append_column(name, column)
    return replace(rows, batch=batch)
