"""The messages in a DLedger log, each with its Raft index and term, and the units of its index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.dledger_log import scan_entries
from rmqtool.filters import Mask
from rmqtool.formats import dledger
from rmqtool.listing.options import ListingOptions
from rmqtool.listing.units import all_of, hex_of, read_units
from rmqtool.locate import Place
from rmqtool.looks import require_kind
from rmqtool.mapped_files import MappedFile
from rmqtool.messages import extent_row, message_rows
from rmqtool.rows import Rows, make_rows, names_taken
from rmqtool.scan.frames import Frames, prove
from rmqtool.scan.text import constant_strings

_INDEX_KINDS = ("empty", "dledger_index_unit")
RAFT_COLUMNS = ("dledger_index", "dledger_term")


def list_entries(place: Place, options: ListingOptions) -> Iterator[Rows]:
    """The messages of all entries, with blanks and damage between them; offsets are those of the messages."""
    for mapped in reversed(place.files) if options.reverse else place.files:
        rows = _file_rows(place, mapped, options)
        yield from reversed([part.reversed() for part in rows]) if options.reverse else rows


def list_dledger_index(place: Place, options: ListingOptions) -> Iterator[Rows]:
    """The units of the index: where the entry of each Raft index stands."""
    for mapped in reversed(place.files) if options.reverse else place.files:
        require_kind(mapped.path, place.kind)
        for block in read_units(mapped, dledger.INDEX_DTYPE, options.reading, options.reverse):
            columns: dict[str, Any] = {
                "file": constant_strings(place.relative(mapped.path), len(block.units)),
                "number": block.numbers + mapped.start_offset // dledger.INDEX_UNIT_SIZE,
                **{name: block.units[name] for name in ("position", "size", "index", "term")},
            }
            if options.with_hex:
                columns["hex"] = hex_of(block.units)
            kinds = names_taken(_INDEX_KINDS, dledger.is_written(block.units).astype(np.int32))
            rows = make_rows(kinds, columns)
            kept = _kept(place, block.units, options)
            if not kept.all():
                rows = Rows(rows.batch.filter(pa.array(kept)))
            yield rows.reversed() if options.reverse else rows


def _kept(place: Place, units: NDArray[np.void], options: ListingOptions) -> Mask:
    """Which units pass, by the place of their message, which is its physical offset, and by the message itself."""
    filters, is_written = options.filters, dledger.is_written(units)
    offsets = units["position"].astype(np.int64) + dledger.ENTRY_HEADER_SIZE
    masks: list[Any] = [is_written] if options.by_record else []
    if filters.start or filters.to_offset is not None:
        masks += [is_written, offsets >= filters.start, offsets < filters.stop]
    sizes = units["size"] - dledger.ENTRY_HEADER_SIZE
    return options.by_records(place.parts[0], all_of(masks, len(units)), offsets, sizes)


def _file_rows(place: Place, mapped: MappedFile, options: ListingOptions) -> Iterator[Rows]:
    filters = options.filters
    for event in scan_entries([mapped], reading=options.reading):
        if isinstance(event, Frames):
            offsets = event.physical_offsets
            inside = (offsets >= filters.start) & (offsets < filters.stop)
            if not inside.any():
                continue
            frames = filters.select(event if inside.all() else prove(event.block, event.positions[inside]))
            if frames is not None:
                file = place.relative(mapped.path)
                yield from (_with_raft(rows, frames) for rows in message_rows(frames, file, options.shape))
        elif filters.start <= event.physical_offset < filters.stop:
            yield extent_row(event)


def _with_raft(rows: Rows, frames: Frames) -> Rows:
    """Rows of messages with what the entries' headers tell."""
    if len(rows) != len(frames):  # large bodies came in parts
        return rows
    headers = frames.block.gather(dledger.ENTRY_DTYPE, frames.positions - dledger.ENTRY_HEADER_SIZE)
    batch = rows.batch
    for name in RAFT_COLUMNS:
        values = headers[name.removeprefix("dledger_")].astype(np.int64)
        batch = batch.append_column(name, pa.array(values))
    return replace(rows, batch=batch)
