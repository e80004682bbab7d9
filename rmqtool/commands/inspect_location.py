"""`rmqtool inspect` of a location in a store: options that fit it, then its listing."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

import rmqtool
from rmqtool.base.errors import Exit, RmqtoolError, UsageError
from rmqtool.base.shell import quote
from rmqtool.commands.inspect_listing import Format, ListingOutput, checked_columns, list_at, show_counts
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.show.output import Style, note

if TYPE_CHECKING:
    from rmqtool.base.decoding import Decoder
    from rmqtool.base.files import RateLimit, ReadPolicy
    from rmqtool.inspect.locate import Location
    from rmqtool.inspect.options import ListingOptions
    from rmqtool.inspect.record_filter import RecordFilter
    from rmqtool.inspect.registry import Listed
    from rmqtool.scan.filters import Filters
    from rmqtool.scan.message_rows import BodyChoice
    from rmqtool.scan.redaction import Redaction
    from rmqtool.show.message_text import BodyFormat

FILTERS = ("topic", "exclude_topic", "queue", "tag", "key", "transaction", "from", "to", "from_offset", "to_offset")
"""The options of filters, in the order of help and messages."""


@dataclass(frozen=True)
class ListingRequest:
    """The options of inspect for a listing, as they were given."""

    filters: Filters
    limit: int | None
    reverse: bool
    follow: bool
    as_hex: bool
    columns: str | None
    output_format: Format | None
    count: bool
    slots: bool
    body: BodyChoice
    body_format: BodyFormat
    redaction: Redaction | None
    decoder: Decoder | None


def list_from(
    style: Style, location: Location, limit_rate: RateLimit | None, conf: BrokerConf, request: ListingRequest
) -> Exit:
    """Show the listing of a location, by the options of inspect; raise UsageError where they do not fit."""
    from rmqtool.inspect.registry import count_location
    from rmqtool.scan.filters import Filters

    _check(location, request, style)
    request = replace(request, decoder=fitting_decoder(location, request))
    names = checked_columns(request.columns, location, request.decoder)
    options = _options(location, request, names, limit_rate, conf)
    if request.count:
        with _reading_shown(style, "counting", location, options) as watched:
            counts = count_location(location, watched)
        return show_counts(style, counts, as_json=style.json, by_record=options.by_record)
    listing_format = "json" if style.json else request.output_format or "text"
    shown = ListingOutput(
        style, location, listing_format, request.body_format, names, request.as_hex, request.redaction, request.decoder
    )
    is_silent = not request.follow and _goes_to_a_file()
    with _reading_shown(style, "listing", location, options) if is_silent else nullcontext(options) as watched:
        status = list_at(shown, _listing(location, request, watched), options.by_record)
    nothing_fits = shown.empty and request.limit != 0 and request.filters != Filters()
    if not style.quiet:
        if nothing_fits or request.filters.excluded_topics:
            for text in _about_filters(location, request.filters, conf, limit_rate, nothing_fits=nothing_fits):
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
    from rmqtool.show.progress import byte_progress

    total = sum(file.size for file in location.files)
    done = 0
    with byte_progress(title, total, style=style) as progress:

        def on_read(size: int) -> None:
            nonlocal done
            done = min(done + size, total)
            progress.update(done)

        yield replace(options, reading=replace(options.reading, on_read=on_read))


def _options(
    location: Location,
    request: ListingRequest,
    columns: tuple[str, ...],
    limit_rate: RateLimit | None,
    conf: BrokerConf,
) -> ListingOptions:
    from rmqtool.base.files import ReadPolicy
    from rmqtool.inspect.options import ListingOptions
    from rmqtool.inspect.registry import LISTINGS
    from rmqtool.scan.decoding import details_read
    from rmqtool.scan.message_rows import MessageShape
    from rmqtool.store.lock import lock_holder

    live = lock_holder(location.root) is not None
    reading = ReadPolicy(limit_rate, drop_page_cache=live)
    filters, by_record = _fitting(location, request.filters, conf, reading)
    chosen = columns
    if request.output_format == "table" and not columns:
        chosen = (*LISTINGS[location.kind].table, "body_crc_ok")
    with_hex = request.as_hex or "hex" in columns
    shape = MessageShape.of(request.body, chosen, with_hex=with_hex)
    if request.decoder is not None:
        shape = shape.for_decoder(details_read(request.decoder))
    return ListingOptions(
        filters=filters,
        by_record=by_record,
        limit=request.limit,
        reverse=request.reverse,
        with_hex=with_hex,
        slots=request.slots,
        shape=shape,
        conf=conf,
        reading=reading,
        live=live,
    )


def fitting_decoder(location: Location, request: ListingRequest) -> Decoder | None:
    """The decoder, None where nothing is decoded; raise UsageError for one that was given where nothing can be."""
    from rmqtool.inspect.registry import LISTINGS
    from rmqtool.scan.decoding import DECODED_COLUMNS

    if request.decoder is None or request.count:
        return None
    names = (request.columns or "").replace(" ", "").split(",")
    why = None
    if not LISTINGS[location.kind].has_messages:
        why = "what is here has no bodies"
    elif request.columns is not None and set(names).isdisjoint(DECODED_COLUMNS):
        why = f"--columns leaves out what it makes: {' and '.join(DECODED_COLUMNS)}"
    if why is None:
        return request.decoder
    if is_given("decoder"):
        raise UsageError(f"--decoder: {why}", file=location.path)
    return None


def _listing(location: Location, request: ListingRequest, options: ListingOptions) -> Iterator[Listed | None]:
    from rmqtool.inspect.follow import follow_log
    from rmqtool.inspect.registry import limited, list_location

    if not request.follow:
        return list_location(location, options)
    from_end = not (is_given("from_offset") or is_given("from"))
    return limited(follow_log(location, options, from_end=from_end), request.limit)


def _about_filters(
    location: Location, filters: Filters, conf: BrokerConf, limit_rate: RateLimit | None, *, nothing_fits: bool
) -> list[str]:
    """Why nothing passes the filters, or which of them leave nothing out."""
    from rmqtool.store.why_nothing import NOTHING_FITS, excludes_nothing, why_nothing

    try:
        snapshot = rmqtool.open(location.root, broker_conf=conf, limit_rate=limit_rate).snapshot
        return [why_nothing(snapshot, filters)] if nothing_fits else [*excludes_nothing(snapshot, filters)]
    except RmqtoolError:  # a file without its store
        return [NOTHING_FITS] if nothing_fits else []


def _print_other_kind(location: Location) -> None:
    """Note when a single file looks like another kind than it was taken for."""
    from rmqtool.inspect.file_kind import as_hint, name_of, other_kind_of

    files = location.files
    if len(files) != 1 or files[0].path.name != location.path.name:
        return
    other_kind = other_kind_of(files[0].path, location.kind)
    if other_kind:
        note(f"this looks like {name_of(other_kind)} rather than {name_of(location.kind)}: {as_hint(other_kind)}")


def _fitting(
    location: Location, filters: Filters, conf: BrokerConf, reading: ReadPolicy
) -> tuple[Filters, RecordFilter | None]:
    """The filters that units decide, and those that need their records; raise UsageError for one that fits neither.

    A filter that is set by the environment is ignored where it does not fit.
    """
    from rmqtool.inspect.record_filter import RecordFilter
    from rmqtool.inspect.registry import LISTINGS, split_filters
    from rmqtool.scan.filters import Filters

    known = LISTINGS[location.kind].filters | LISTINGS[location.kind].by_record
    wrong = [name for name in FILTERS if name not in known and is_given(name)]
    if wrong:
        raise _filter_not_possible(location, wrong, "what is here does not show it")
    by_units, by_records = split_filters(location.kind, filters)
    if by_records == Filters():
        return by_units, None
    record_filter = RecordFilter(location, by_records, conf, reading)
    if record_filter.has_log:
        return by_units, record_filter
    asked = [name for name in FILTERS if by_records.only([name]) != Filters() and is_given(name)]
    if asked:
        raise _filter_not_possible(
            location, asked, "what is here does not show it, and the log with the messages is not beside it"
        )
    return by_units, None


def _filter_not_possible(location: Location, names: list[str], message: str) -> UsageError:
    given = [f"--{option_name(name)}" for name in names]
    hint = f"rmqtool inspect {quote(str(location.root / 'commitlog'))} {given[0]} ..."
    if location.kind == "index" and "queue" not in names:
        hint = "a unit has the hash of a topic with a key or a tag: give --topic and one of --key and --tag"
    return UsageError(f"{', '.join(given)}: {message}", file=location.path, hint=hint)


def _check(location: Location, request: ListingRequest, style: Style) -> None:
    """Raise UsageError for options that do not fit each other or the location."""
    from rmqtool.scan.topic_choice import is_pattern

    topics = (*request.filters.topics, *request.filters.excluded_topics)
    if request.follow and (location.kind != "commitlog" or request.reverse or request.count):
        raise UsageError("--follow is for a commit log, without --reverse and --count", file=location.path)
    if request.slots and location.kind != "index":
        raise UsageError("--slots is for index files", file=location.path)
    if style.json and request.output_format not in (None, "json"):
        raise UsageError(f"--json and --format {request.output_format} ask for two things")
    if location.kind == "timerlog" and any(map(is_pattern, topics)):
        raise UsageError("a unit of the timer has the hash of a topic: give whole names", file=location.path)
    if request.slots:
        _check_slots(location, request.filters)
    if request.redaction is not None:
        _check_redaction(location, request, request.redaction)


def _check_redaction(location: Location, request: ListingRequest, redaction: Redaction) -> None:
    """Raise UsageError where stored bytes would show what is redacted."""
    if location.kind in ("config", "rocksdb", "text"):
        raise UsageError("--redact: files of this kind cannot be redacted", file=location.path)
    if request.as_hex or "hex" in (request.columns or "").split(","):
        raise UsageError("--redact: stored bytes in hex cannot be redacted", file=location.path)
    if request.slots and redaction.hides("key_hash"):
        raise UsageError("--redact: hash slots show the hashes of keys", file=location.path)


def _check_slots(location: Location, filters: Filters) -> None:
    """Raise UsageError unless the filters name a topic with a key or a tag, or nothing: a slot has only their hash."""
    from rmqtool.inspect.index_files import HASHED, is_hashed

    others = [name for name in FILTERS if name not in HASHED and is_given(name)]
    if others:
        raise _filter_not_possible(location, others, "hash slots do not show it")
    if any(is_given(name) for name in HASHED) and not is_hashed(filters):
        raise UsageError("a hash slot is that of a topic with a key or a tag: give --topic and one of them")


def is_given(option: str) -> bool:
    """Whether an option was given on the command line, and not by the environment."""
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


def option_name(name: str) -> str:
    """An option's name on the command line."""
    return {"as_hex": "hex", "output_format": "format"}.get(name, name.replace("_", "-"))
