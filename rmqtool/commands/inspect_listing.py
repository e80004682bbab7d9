"""Showing the listing of a location: JSON lines, CSV, a table, or text for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from rmqtool.base.errors import Exit, UsageError
from rmqtool.base.visible import json_text
from rmqtool.commands.decoder_options import note_failures
from rmqtool.show.output import Style, flush, note, terminal_width, write_bytes, write_line, write_text

if TYPE_CHECKING:
    from rmqtool.base.decoding import Decoder
    from rmqtool.inspect.locate import Location
    from rmqtool.inspect.record_filter import RecordFilter
    from rmqtool.inspect.registry import Listed
    from rmqtool.scan.redaction import Redaction
    from rmqtool.scan.rows import Rows
    from rmqtool.show.message_text import BodyFormat
    from rmqtool.show.tables import TableWriter

Format = Literal["text", "table", "json", "csv"]

_PEOPLE_ROWS = 1000  # rows that become Python objects at once
_BAD_KINDS = frozenset({"damage", "bad_unit", "bad_row", "config_problem", "rocksdb_problem"})


@dataclass
class ListingOutput:
    """How a listing is shown, and what it has shown so far."""

    style: Style
    location: Location
    format: Format
    body_format: BodyFormat
    columns: tuple[str, ...] = ()
    with_hex: bool = False
    redaction: Redaction | None = None
    decoder: Decoder | None = None
    empty: bool = True
    lossy: bool = False
    damaged: int = 0  # extents that have no line in CSV
    _table: TableWriter | None = field(default=None, repr=False)
    _begun: bool = False
    _group: tuple[Any, ...] = ()

    @property
    def left_out(self) -> list[str]:
        """Columns for which the terminal has no room."""
        return self._table.left_out if self._table else []

    def show(self, listed: Listed) -> None:
        """Show some rows."""
        self.empty = False
        self.lossy = self.lossy or _is_lossy(listed)
        if self.redaction is not None and not isinstance(listed, dict):
            listed = replace(listed, batch=self.redaction.batch(listed.batch))
        if self.format == "json":
            self._as_json(listed)
        elif self.format == "csv":
            self._as_csv(listed)
        elif isinstance(listed, dict):
            write_text(self._entry_text(listed))
        elif self.format == "table" or self._is_tabular(listed):
            self._as_table(listed)
        else:
            self._as_text(listed)

    def _is_tabular(self, rows: Rows) -> bool:
        from rmqtool.inspect.registry import LISTINGS

        listing = LISTINGS[self.location.kind]
        return bool(listing.table and not listing.has_messages and not self.with_hex and rows.counted)

    def _as_json(self, listed: Listed) -> None:
        from rmqtool.scan.json_lines import json_lines

        if isinstance(listed, dict):
            write_line(self.style, _chosen(listed, self.columns))
            return
        self.style.lines_begun = True
        rows = self._selected(listed)
        write_bytes(json_lines(rows.batch, rows.optional, self.style.int64))

    def _as_csv(self, listed: Listed) -> None:
        import sys

        from rmqtool.scan.csv_lines import csv_header, csv_lines

        rows = _flat(listed) if isinstance(listed, dict) else listed
        names = self._csv_columns()
        if not self._begun:
            self._begun = True
            write_bytes(csv_header(names))
        if rows.counted:
            write_bytes(csv_lines(rows.batch, names, visible=sys.stdout.isatty()))
        elif rows.dicts()[0]["kind"] == "damage":
            self.damaged += 1

    def _csv_columns(self) -> tuple[str, ...]:
        from rmqtool.inspect.registry import LISTINGS
        from rmqtool.scan.decoding import DECODED_COLUMNS

        if self.columns:
            return self.columns
        listing = LISTINGS[self.location.kind]
        names = listing.columns if listing.has_messages else ("kind", *listing.columns)
        names += DECODED_COLUMNS if self.decoder is not None else ()
        return (*names, "hex") if self.with_hex else names

    def _as_table(self, rows: Rows) -> None:
        from rmqtool.inspect.registry import LISTINGS
        from rmqtool.show.tables import TableWriter

        if not rows.counted or LISTINGS[self.location.kind].is_one_object:
            self._as_text(rows)
            return
        if self._table is None:
            names = self.columns or self._table_columns(rows)
            self._table = TableWriter(names, terminal_width(), keep_all=bool(self.columns))
        write_bytes(self._table.lines(rows))

    def _table_columns(self, rows: Rows) -> list[str]:
        """The usual columns without those that would say the same in every row."""
        from rmqtool.inspect.registry import LISTINGS
        from rmqtool.scan.decoding import BODY_DECODED

        if rows.batch.column(0)[0].as_py() == "index_slot":
            return rows.names[2:]
        wanted = (*LISTINGS[self.location.kind].table, *([BODY_DECODED] if self.decoder else []))
        names = [name for name in wanted if name in rows.names]
        if len(self.location.groups) == 1 and not LISTINGS[self.location.kind].has_messages:
            names = [name for name in names if name not in ("topic", "queue_id")]
        return names or rows.names

    def _as_text(self, rows: Rows) -> None:
        for start in range(0, len(rows), _PEOPLE_ROWS):
            piece = rows.slice(start, _PEOPLE_ROWS)
            for row in (self._selected(piece) if self.columns else piece).dicts():
                write_text(self._row_text(row))

    def _row_text(self, row: dict[str, Any]) -> str:
        from rmqtool.inspect.registry import LISTINGS
        from rmqtool.show.hex_dump import hex_fields
        from rmqtool.show.message_text import fields_text, object_text, text_line

        listing = LISTINGS[self.location.kind]
        stored = row.pop("hex", None)
        color = self.style.wants_color()
        if row["kind"] == "text":
            text = text_line(row["text"])
        elif (listing.has_messages and not self.columns) or row["kind"] in ("blank", "damage"):
            text = object_text(row, self.body_format, color=color, width=terminal_width())
        else:
            text = fields_text(row, listing.layout if listing.is_one_object else None, color=color)
        if self.with_hex and stored is not None:
            text += "".join(f"{line}\n" for line in hex_fields(listing.layout, bytes.fromhex(stored)))
        return text

    def _entry_text(self, entry: dict[str, Any]) -> str:
        """An entry of a JSON file, under the name of its file and table."""
        from rmqtool.show.message_text import entry_text, heading_text

        color = self.style.wants_color()
        if entry["kind"] in ("config_problem", "rocksdb_problem"):
            return heading_text(f"{entry['file']}: {entry['message']}", color=color, bad=True)
        group = (entry["file"], entry.get("table", entry.get("family")))
        head = "" if group == self._group else heading_text("  ".join(str(name) for name in group if name), color=color)
        self._group = group
        if entry["kind"] == "bad_row":
            return head + heading_text(f"{entry['key']}: {entry['message']}", color=color, bad=True)
        name = " ".join(map(str, entry["key"].values())) if entry["kind"] == "rocksdb_row" else entry["name"]
        return head + entry_text(name, entry["value"])

    def _selected(self, rows: Rows) -> Rows:
        if not self.columns or not rows.counted:
            return rows
        return rows.select((*self.columns, "hex") if self.with_hex else self.columns)


def list_at(shown: ListingOutput, listing: Iterator[Listed | None], by_record: RecordFilter | None) -> Exit:
    """Show a listing, with its bodies decoded where that is asked for; None in it asks to flush the output."""
    if shown.decoder is None:
        _show_all(shown, listing)
    else:
        from rmqtool.scan.decoding import BodyDecoder

        with BodyDecoder(shown.decoder, shown.redaction) as decoder:
            _show_all(shown, decoder.listing(listing))
        shown.lossy |= decoder.failures.is_lossy
        note_failures(shown.style, decoder.failures)
    if shown.left_out and not shown.style.quiet:
        note(f"too wide for this terminal, left out: {', '.join(shown.left_out)}; --columns chooses")
    if shown.damaged:
        note(f"{shown.damaged} damaged extents have no line in CSV: --format json shows them")
    unread = _print_unjudged(shown.style, by_record, as_json=shown.format == "json")
    return Exit.LOSSY if shown.lossy or unread else Exit.OK


def _show_all(shown: ListingOutput, listing: Iterator[Listed | None]) -> None:
    for listed in listing:
        if listed is None:
            flush()
        else:
            shown.show(listed)


def show_counts(style: Style, counts: dict[str, int], *, as_json: bool, by_record: RecordFilter | None) -> Exit:
    """Show how many there are of each kind."""
    if as_json:
        write_line(style, {"kind": "count", "counts": counts})
    else:
        write_text("".join(f"{count:>12,} {kind}\n" for kind, count in counts.items()))
    unread = _print_unjudged(style, by_record, as_json=as_json)
    return Exit.LOSSY if unread or _BAD_KINDS & counts.keys() else Exit.OK


def _print_unjudged(style: Style, by_record: RecordFilter | None, *, as_json: bool) -> bool:
    """Report how many units the filters could not judge; whether a record is missing that should be there."""
    if by_record is None or not (by_record.deleted or by_record.unread):
        return False
    if as_json:
        write_line(style, {"kind": "unjudged", "deleted": by_record.deleted, "unread": by_record.unread})
    if by_record.deleted and not style.quiet:
        note(f"{by_record.deleted} units left out: their messages have been deleted, so that no filter can judge them")
    if by_record.unread:
        note(f"{by_record.unread} units left out: no message stands in the log where they point, so none can be judged")
    return by_record.unread > 0


def checked_columns(text: str | None, location: Location, decoder: Decoder | None) -> tuple[str, ...]:
    """The names in ``--columns``; raise UsageError for one that this kind of file does not have."""
    from rmqtool.inspect.registry import LISTINGS
    from rmqtool.scan.columns import MESSAGE_WISHES, is_wished
    from rmqtool.scan.decoding import DECODED_COLUMNS

    if text is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    listing = LISTINGS[location.kind]
    known = ("kind", *listing.columns, "hex", *(DECODED_COLUMNS if decoder is not None else ()))
    unknown = [name for name in names if name not in known and not (listing.has_messages and is_wished(name))]
    if unknown or not names:
        shown = (*known, *MESSAGE_WISHES) if listing.has_messages else known
        needs = "; with --decoder also body_decoded" if listing.has_messages and decoder is None else ""
        raise UsageError(
            f"--columns: no such column here: {', '.join(unknown) or text!r}",
            hint=f"there are: {', '.join(shown)}{needs}",
        )
    return names


def _is_lossy(listed: Listed) -> bool:
    import pyarrow.compute as pc

    if isinstance(listed, dict):
        return listed["kind"] in _BAD_KINDS
    if "body_crc_ok" in listed.names and not pc.all(listed.batch.column("body_crc_ok")).as_py():
        return True
    return not _BAD_KINDS.isdisjoint(pc.unique(listed.batch.column("kind")).to_pylist())


def _chosen(entry: dict[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if not columns or name in ("kind", *columns)}


def _flat(entry: dict[str, Any]) -> Rows:
    """One object as a row, with objects and lists in it as JSON."""
    from rmqtool.scan.rows import one_row

    values = {name: value if isinstance(value, str | None) else json_text(value) for name, value in entry.items()}
    return one_row(str(values.pop("kind")), values)
