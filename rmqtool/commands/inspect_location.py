"""`rmqtool inspect` of a location in a store: options that fit it, then its listing."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from rmqtool.base.errors import Exit, RmqtoolError, UsageError
from rmqtool.base.visible import json_text, quote, visible
from rmqtool.commands import shared_options as shared
from rmqtool.commands.options import argument, flag, is_given, option
from rmqtool.findings.finding import counted
from rmqtool.show.output import Style, flush, note, terminal_width, write_bytes, write_line, write_text
from rmqtool.show.progress import byte_progress

if TYPE_CHECKING:
    from rmqtool.base.decoders import Decoder
    from rmqtool.base.files import ReadPolicy
    from rmqtool.inspect.locate import Location
    from rmqtool.inspect.options import ListingOptions, RecordFilter
    from rmqtool.inspect.registry import Listed, Listing
    from rmqtool.scan.filters import Filters
    from rmqtool.scan.message_rows import BodyChoice
    from rmqtool.scan.redaction import Redaction
    from rmqtool.scan.rows import Rows
    from rmqtool.show.messages import BodyFormat
    from rmqtool.show.tables import TableWriter

Format = Literal["text", "table", "json", "csv", "openmetrics", "nagios"]

_PEOPLE_ROWS = 1000  # rows that become Python objects at once
_BAD_KINDS = frozenset({"damage", "bad_unit", "bad_row", "config_problem", "rocksdb_problem"})


@dataclass
class ListingOutput:
    """How a listing is shown, and what it has shown so far: `empty` is one of blanks alone.

    With `filters` people see no blanks, which pass none.
    """

    style: Style
    location: Location
    format: Format
    body_format: BodyFormat
    columns: tuple[str, ...] = ()
    with_hex: bool = False
    redaction: Redaction | None = None
    decoder: Decoder | None = None
    filters: bool = False
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

    @cached_property
    def listing(self) -> Listing:
        """How the kind of file is listed."""
        from rmqtool.inspect.registry import LISTINGS

        return LISTINGS[self.location.kind]

    def show(self, listed: Listed) -> None:
        """Show some rows."""
        if not _is_blank(listed):
            self.empty = False
        elif self.filters and self.format in ("text", "table"):
            return
        self.lossy = self.lossy or _is_lossy(listed)
        if self.redaction is not None and not isinstance(listed, dict):
            listed = replace(listed, batch=self.redaction.batch(listed.batch))
        if self.format == "json":
            self._as_json(listed)
        elif self.format == "csv":
            self._as_csv(listed)
        elif isinstance(listed, dict):
            write_text(self._entry_text(listed))
        elif self.format == "table" or (
            self.listing.table and not self.listing.has_messages and not self.with_hex and listed.counted
        ):
            self._as_table(listed)
        else:
            self._as_text(listed)

    def _as_json(self, listed: Listed) -> None:
        from rmqtool.scan.rows import json_lines

        if isinstance(listed, dict):
            wanted = ("kind", *self.columns) if self.columns else listed
            write_line(self.style, {name: value for name, value in listed.items() if name in wanted})
            return
        self.style.lines_begun = True
        rows = self._selected(listed)
        write_bytes(json_lines(rows.batch, rows.optional, self.style.int64))

    def _as_csv(self, listed: Listed) -> None:
        from rmqtool.scan.rows import csv_header, csv_lines, one_row

        rows = listed
        if isinstance(rows, dict):  # one object, as a row with objects and lists in it as JSON
            values = {name: each if isinstance(each, str | None) else json_text(each) for name, each in rows.items()}
            rows = one_row(str(values.pop("kind")), values)
        names = self._csv_columns()
        if not self._begun:
            self._begun = True
            write_bytes(csv_header(names))
        if rows.counted:
            write_bytes(csv_lines(rows.batch, names, visible=sys.stdout.isatty()))
        elif rows.dicts()[0]["kind"] == "damage":
            self.damaged += 1

    def _csv_columns(self) -> tuple[str, ...]:
        from rmqtool.scan.message_rows import DECODED_COLUMNS

        if self.columns:
            return self.columns
        names = self.listing.columns if self.listing.has_messages else ("kind", *self.listing.columns)
        names += DECODED_COLUMNS if self.decoder is not None else ()
        return (*names, "hex") if self.with_hex else names

    def _as_table(self, rows: Rows) -> None:
        from rmqtool.show.tables import TableWriter

        if not rows.counted or self.listing.is_one_object:
            self._as_text(rows)
            return
        if self._table is None:
            names = self.columns or self._table_columns(rows)
            self._table = TableWriter(names, terminal_width(), keep_all=bool(self.columns))
        write_bytes(self._table.lines(rows.batch))

    def _table_columns(self, rows: Rows) -> list[str]:
        """The usual columns without those that would say the same in every row."""
        from rmqtool.scan.message_rows import BODY_DECODED

        if rows.batch.column(0)[0].as_py() == "index_slot":
            return rows.names[2:]
        wanted = (*self.listing.table, *([BODY_DECODED] if self.decoder else []))
        names = [name for name in wanted if name in rows.names]
        if len(self.location.groups) == 1 and not self.listing.has_messages:
            names = [name for name in names if name not in ("topic", "queue_id")]
        return names or rows.names

    def _as_text(self, rows: Rows) -> None:
        for start in range(0, len(rows), _PEOPLE_ROWS):
            piece = rows.slice(start, _PEOPLE_ROWS)
            for row in (self._selected(piece) if self.columns else piece).dicts():
                write_text(self._row_text(row))

    def _row_text(self, row: dict[str, Any]) -> str:
        from rmqtool.show.messages import fields_text, hex_fields, object_text

        listing = self.listing
        stored = row.pop("hex", None)
        color = self.style.wants_color()
        if row["kind"] == "text":
            text = visible(row["text"]) + "\n"
        elif (listing.has_messages and not self.columns) or row["kind"] in ("blank", "damage"):
            text = object_text(row, self.body_format, color=color, width=terminal_width())
        else:
            text = fields_text(row, listing.layout if listing.is_one_object else None, color=color)
        if self.with_hex and stored is not None:
            text += "".join(f"{line}\n" for line in hex_fields(listing.layout, bytes.fromhex(stored)))
        return text

    def _entry_text(self, entry: dict[str, Any]) -> str:
        """An entry of a JSON file, under the name of its file and table."""
        from rmqtool.show.messages import entry_text, heading_text

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
    from rmqtool.scan.message_rows import BodyDecoder

    with BodyDecoder(shown.decoder, shown.redaction) if shown.decoder else nullcontext() as decoder:
        for listed in decoder.listing(listing) if decoder else listing:
            if listed is None:
                flush()
            else:
                shown.show(listed)
    if decoder:
        shown.lossy |= decoder.failures.is_lossy
        shared.note_failures(shown.style, decoder.failures)
    if shown.left_out and not shown.style.quiet:
        note(f"left out, because the terminal is too narrow: {', '.join(shown.left_out)}; --columns selects")
    if shown.damaged:
        note(f"not in CSV: {counted(shown.damaged, 'damaged range')}; --format json shows them")
    unread = _print_unjudged(shown.style, by_record, as_json=shown.format == "json")
    return Exit.LOSSY if shown.lossy or unread else Exit.OK


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
        note(f"{counted(by_record.deleted, 'entry')} left out: their messages have been deleted, so no filter applies")
    if by_record.unread:
        note(f"{counted(by_record.unread, 'entry')} left out: the log has no message where they point")
    return by_record.unread > 0


def checked_columns(text: str | None, location: Location, decoder: Decoder | None) -> tuple[str, ...]:
    """The names in ``--columns``; raise UsageError for one that this kind of file does not have."""
    from rmqtool.inspect.registry import LISTINGS
    from rmqtool.scan.columns import MESSAGE_WISHES, is_wished
    from rmqtool.scan.message_rows import DECODED_COLUMNS
    from rmqtool.scan.typed_columns import split_columns, typed_column

    if text is None:
        return ()
    names = tuple(dict.fromkeys(split_columns(text)))
    listing = LISTINGS[location.kind]
    known = ("kind", *listing.columns, "hex", *(DECODED_COLUMNS if decoder is not None else ()))
    typed = [column.name for name in names if listing.has_messages and (column := typed_column(name)) is not None]
    if taken := [name for name in typed if name in known or typed.count(name) > 1 or names.count(name)]:
        raise UsageError(f"--columns: another column is named {taken[0]}", hint="for example: ... as other_name")
    unknown = [name for name in names if name not in known
               and not (listing.has_messages and (is_wished(name) or typed_column(name)))]  # fmt: skip
    if unknown or not names:
        shown = (*known, *MESSAGE_WISHES) if listing.has_messages else known
        needs = "; with --decoder also body_decoded" if listing.has_messages and decoder is None else ""
        raise UsageError(
            f"--columns: no such column here: {', '.join(unknown) or text!r}",
            hint=f"there are: {', '.join(shown)}{needs}",
        )
    return names


def _is_blank(listed: Listed) -> bool:
    """Whether this is the end of a file, which holds nothing."""
    return not isinstance(listed, dict) and not listed.counted and listed.batch.column("kind")[0].as_py() == "blank"


def _is_lossy(listed: Listed) -> bool:
    import pyarrow.compute as pc

    if isinstance(listed, dict):
        return listed["kind"] in _BAD_KINDS
    if "body_crc_ok" in listed.names and not pc.all(listed.batch.column("body_crc_ok")).as_py():
        return True
    return not _BAD_KINDS.isdisjoint(pc.unique(listed.batch.column("kind")).to_pylist())


FILTERS = ("topic", "exclude_topic", "queue", "tag", "key", "transaction", "from", "to", "from_offset", "to_offset")
"""The options of filters, in the order of help and messages."""


OF_STORES = ("openmetrics", "nagios")  # formats for a whole store


@dataclass(frozen=True, kw_only=True)
class ListingRequest(shared.OnStore):
    """What was asked for of inspect, for a listing."""

    path: Path = argument(None, shared.StorePath(may_be_remote=True))
    filters: Filters = shared.filter_options()
    limit: int | None = shared.limit_option()
    reverse: bool = flag("Show the newest first.")
    follow: bool = flag("Follow the log as the broker appends to it, until Ctrl-C.", "-f", "--follow")
    as_hex: bool = flag(
        "Also show the bytes of each entry, with its fields named.", "--hex", envvar="RMQTOOL_INSPECT_HEX"
    )
    columns: str | None = option("Show only these fields, separated by commas.", metavar="NAMES")
    output_format: Format | None = option(
        "text for people (default), a table, JSON lines, or CSV; figures of a store: openmetrics, nagios.",
        "--format", envvar="RMQTOOL_INSPECT_FORMAT", type=click.Choice(["text", "table", "json", "csv", *OF_STORES]),
    )  # fmt: skip
    count: bool = flag("Show only how many of each kind there are.")
    slots: bool = flag("Show the hash slots of an index file and the lengths of their chains.")
    body: BodyChoice = shared.body_option()
    body_format: BodyFormat = shared.body_format_option()
    redaction: Redaction | None = shared.redact_options()
    decoder: Decoder | None = shared.decoder_option()


def list_from(style: Style, location: Location, request: ListingRequest) -> Exit:
    """Show the listing of a location, by the options of inspect; raise UsageError where they do not fit."""
    from rmqtool.inspect.registry import count_location
    from rmqtool.scan.filters import Filters

    _check(location, request, style)
    request = replace(request, decoder=fitting_decoder(location, request))
    columns = checked_columns(request.columns, location, request.decoder)
    options = _options(location, request, columns)
    if request.redaction is not None and options.shape.typed:
        raise UsageError("--redact: columns with a type or a name cannot be redacted", hint="name them as they are")
    names = options.shape.names if options.shape.typed else columns
    if request.count:
        with _reading_shown(style, "counting", location, options) as watched:
            counts = count_location(location, watched)
        return show_counts(style, counts, as_json=style.json, by_record=options.by_record)
    form: Format = "json" if style.json else request.output_format or "text"
    shown = ListingOutput(style, location, form, request.body_format, names, request.as_hex, request.redaction,
                          request.decoder, request.filters != Filters())  # fmt: skip
    is_silent = not request.follow and _goes_to_a_file()
    with _reading_shown(style, "listing", location, options) if is_silent else nullcontext(options) as watched:
        status = list_at(shown, _listing(location, request, watched), options.by_record)
    nothing_fits = shown.empty and request.limit != 0 and shown.filters
    for name, (count, first) in options.shape.unfit.items():
        note(f"{name}: {counted(count, 'value')} of another type, and null; the first at offset {first}")
        status = Exit.LOSSY
    if not style.quiet:
        if nothing_fits or request.filters.excluded_topics:
            for text in _about_filters(location, request, nothing_fits=nothing_fits):
                note(text)
        elif shown.empty and request.limit != 0:
            note(f"nothing is stored in this part of the {'commit log' if location.kind == 'commitlog' else 'store'}")
        _print_other_kind(location)
    return Exit.FINDINGS if nothing_fits and status is Exit.OK else status


def _goes_to_a_file() -> bool:
    """Whether nobody sees the listing grow; a pipe may end in a pager, which has the terminal for itself."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


@contextmanager
def _reading_shown(style: Style, title: str, location: Location, options: ListingOptions) -> Iterator[ListingOptions]:
    """The same options, with which the bytes that are read become a progress."""
    with byte_progress(title, sum(file.size for file in location.files), style=style) as progress:
        yield replace(options, reading=replace(options.reading, on_read=progress.add))


def _options(location: Location, request: ListingRequest, columns: tuple[str, ...]) -> ListingOptions:
    from rmqtool.base.files import ReadPolicy
    from rmqtool.inspect.options import ListingOptions
    from rmqtool.inspect.registry import LISTINGS
    from rmqtool.scan.message_rows import MessageShape, details_read
    from rmqtool.store.lock import lock_holder

    live = lock_holder(location.root) is not None
    reading = ReadPolicy(request.limit_rate, drop_page_cache=live)
    filters, by_record = _fitting(location, request, reading)
    chosen = columns
    if request.output_format == "table" and not columns:
        chosen = (*LISTINGS[location.kind].table, "body_crc_ok")
    with_hex = request.as_hex or "hex" in columns
    shape = MessageShape.of(request.body, chosen, with_hex=with_hex)
    if request.decoder is not None:
        shape = shape.for_decoder(details_read(request.decoder))
    return ListingOptions(filters, by_record, request.limit, request.reverse, with_hex, request.slots, shape,
                          request.broker_conf, reading, live)  # fmt: skip


def fitting_decoder(location: Location, request: ListingRequest) -> Decoder | None:
    """The decoder, None where nothing is decoded; raise UsageError for one that was given where nothing can be."""
    from rmqtool.inspect.registry import LISTINGS
    from rmqtool.scan.message_rows import DECODED_COLUMNS

    if request.decoder is None or request.count:
        return None
    names = (request.columns or "").replace(" ", "").split(",")
    why = None
    if not LISTINGS[location.kind].has_messages:
        why = "there are no bodies here"
    elif request.columns is not None and set(names).isdisjoint(DECODED_COLUMNS):
        why = f"--columns leaves out its column: {' and '.join(DECODED_COLUMNS)}"
    if why is None:
        return request.decoder
    if is_given("decoder"):
        raise UsageError(f"--decoder: {why}", file=location.path)
    return None


def _listing(location: Location, request: ListingRequest, options: ListingOptions) -> Iterator[Listed | None]:
    from rmqtool.inspect.commit_log import follow_log
    from rmqtool.inspect.registry import limited, list_location

    if not request.follow:
        return list_location(location, options)
    from_end = not (is_given("from_offset") or is_given("from"))
    return limited(follow_log(location, options, from_end=from_end), request.limit)


def _about_filters(location: Location, request: ListingRequest, *, nothing_fits: bool) -> list[str]:
    """Why nothing passes the filters, or which of them leave nothing out."""
    from rmqtool.store.missing import NOTHING_FITS, excludes_nothing, why_nothing

    try:
        snapshot = replace(request, broker_version=None).open(location.root).snapshot
        if nothing_fits:
            return [why_nothing(snapshot, request.filters)]
        return [*excludes_nothing(snapshot, request.filters)]
    except RmqtoolError:  # a file without its store
        return [NOTHING_FITS] if nothing_fits else []


def _print_other_kind(location: Location) -> None:
    """Note when a single file looks like another kind than it was taken for."""
    from rmqtool.inspect.locate import as_hint, name_of, other_kind_of

    files = location.files
    if len(files) != 1 or files[0].path.name != location.path.name:
        return
    other_kind = other_kind_of(files[0].path, location.kind)
    if other_kind:
        note(f"this looks like {name_of(other_kind)} rather than {name_of(location.kind)}: {as_hint(other_kind)}")


def _fitting(location: Location, request: ListingRequest, reading: ReadPolicy) -> tuple[Filters, RecordFilter | None]:
    """The filters that units decide, and those that need their records; raise UsageError for one that fits neither.

    A filter that is set by the environment is ignored where it does not fit.
    """
    from rmqtool.inspect.options import RecordFilter
    from rmqtool.inspect.registry import LISTINGS, split_filters
    from rmqtool.scan.filters import Filters

    known = LISTINGS[location.kind].filters | LISTINGS[location.kind].by_record
    wrong = [name for name in FILTERS if name not in known and is_given(name)]
    if wrong:
        raise _filter_not_possible(location, wrong, "it is not in these files")
    by_units, by_records = split_filters(location.kind, request.filters)
    if by_records == Filters():
        return by_units, None
    record_filter = RecordFilter(location, by_records, request.broker_conf, reading)
    if record_filter.has_log:
        return by_units, record_filter
    asked = [name for name in FILTERS if by_records.only([name]) != Filters() and is_given(name)]
    if asked:
        why = "it is not in these files, and there is no commit log next to them"
        raise _filter_not_possible(location, asked, why)
    return by_units, None


def _filter_not_possible(location: Location, names: list[str], message: str) -> UsageError:
    given = [f"--{option_name(name)}" for name in names]
    hint = f"rmqtool inspect {quote(str(location.root / 'commitlog'))} {given[0]} ..."
    if location.kind == "index" and "queue" not in names:
        hint = "an entry has the hash of a topic with a key or a tag: give --topic and one of --key and --tag"
    return UsageError(f"{', '.join(given)}: {message}", file=location.path, hint=hint)


def _check(location: Location, request: ListingRequest, style: Style) -> None:
    """Raise UsageError for options that do not fit each other or the location."""
    from rmqtool.scan.filters import is_pattern

    topics = (*request.filters.topics, *request.filters.excluded_topics)
    if request.follow and (location.kind != "commitlog" or request.reverse or request.count):
        raise UsageError("--follow is for a commit log, without --reverse and --count", file=location.path)
    if request.slots and location.kind != "index":
        raise UsageError("--slots is for index files", file=location.path)
    if style.json and request.output_format not in (None, "json"):
        raise UsageError(f"--json and --format {request.output_format} contradict each other")
    if location.kind == "timerlog" and any(map(is_pattern, topics)):
        raise UsageError("an entry of the timer has the hash of a topic: give full names", file=location.path)
    if request.slots:
        _check_slots(location, request.filters)
    if request.redaction is None:
        return
    if location.kind in ("config", "rocksdb", "text"):
        raise UsageError("--redact: files of this kind cannot be redacted", file=location.path)
    if request.as_hex or "hex" in (request.columns or "").split(","):
        raise UsageError("--redact: stored bytes in hex cannot be redacted", file=location.path)
    if request.slots and request.redaction.hides("key_hash"):
        raise UsageError("--redact: hash slots show the hashes of keys", file=location.path)


def _check_slots(location: Location, filters: Filters) -> None:
    """Raise UsageError unless the filters name a topic with a key or a tag, or nothing: a slot has only their hash."""
    from rmqtool.inspect.unit_files import HASHED, is_hashed

    if others := [name for name in FILTERS if name not in HASHED and is_given(name)]:
        raise _filter_not_possible(location, others, "it is not in hash slots")
    if any(map(is_given, HASHED)) and not is_hashed(filters):
        raise UsageError("a hash slot is that of a topic with a key or a tag: give --topic and one of them")


def option_name(name: str) -> str:
    """An option's name on the command line."""
    return {"as_hex": "hex", "output_format": "format"}.get(name, name.replace("_", "-"))
