"""`rmqtool inspect` of a place in a store: options that fit it, then its listing."""

from __future__ import annotations

from dataclasses import fields
from shlex import quote
from typing import TYPE_CHECKING

import click

from rmqtool.broker_conf import BrokerConf
from rmqtool.commands.inspect_listing import Format, Shown, checked_columns, list_at, show_counts
from rmqtool.errors import Exit, UsageError
from rmqtool.output import Style, note

if TYPE_CHECKING:
    from rmqtool.files import RateLimit
    from rmqtool.filters import Filters
    from rmqtool.locate import Place
    from rmqtool.message_text import BodyFormat
    from rmqtool.messages import BodyChoice

FILTERS = ("topic", "queue", "tag", "key", "from", "to", "from_offset", "to_offset")
"""The options of filters, in the order of the fields of Filters."""


def list_from(
    style: Style,
    place: Place,
    limit_rate: RateLimit | None,
    conf: BrokerConf,
    *,
    filters: Filters,
    limit: int | None,
    reverse: bool,
    follow: bool,
    as_hex: bool,
    columns: str | None,
    output_format: Format | None,
    count: bool,
    slots: bool,
    body: BodyChoice,
    body_format: BodyFormat,
) -> Exit:
    """Show what is at a place in a store, by the options of inspect; raise UsageError where they do not fit."""
    from rmqtool.files import Reading
    from rmqtool.listing.follow import follow_log
    from rmqtool.listing.kinds import LISTINGS, count_place, limited, list_place
    from rmqtool.listing.options import ListingOptions
    from rmqtool.lock import lock_holder
    from rmqtool.messages import MessageShape

    filters = _fitting(place, filters)
    _check(place, filters, reverse, follow, count, slots, output_format, style)
    names = checked_columns(columns, place)
    chosen = names
    if output_format == "table" and not names:
        chosen = (*LISTINGS[place.kind].table, "body_crc_ok")
    live = lock_holder(place.root) is not None
    options = ListingOptions(
        filters=filters,
        limit=limit,
        reverse=reverse,
        with_hex=as_hex or "hex" in names,
        slots=slots,
        shape=MessageShape.of(body, chosen, as_hex),
        conf=conf,
        reading=Reading(limit_rate, spare_cache=live),
        live=live,
    )
    if count:
        return show_counts(style, count_place(place, options), style.json)
    shown = Shown(style, place, "json" if style.json else output_format or "text", body_format, names, as_hex)
    from_end = not (is_given("from_offset") or is_given("from"))
    found = limited(follow_log(place, options, from_end), limit) if follow else list_place(place, options)
    status = list_at(shown, found)
    if shown.empty and limit != 0 and not style.quiet:
        note(_nothing(place))
    return status


def _nothing(place: Place) -> str:
    return f"nothing is stored in this part of the {'commit log' if place.kind == 'commitlog' else 'store'}"


def _fitting(place: Place, filters: Filters) -> Filters:
    """The filters that this kind of place knows; one of the others on the command line is an error."""
    from rmqtool.filters import Filters
    from rmqtool.listing.kinds import LISTINGS

    known = LISTINGS[place.kind].filters
    wrong = [f"--{spelt(name)}" for name in FILTERS if name not in known and is_given(name)]
    if wrong:
        hint = f"rmqtool inspect {quote(str(place.root / 'commitlog'))} {wrong[0]} ..."
        raise UsageError(f"{', '.join(wrong)}: what is here does not tell", file=place.path, hint=hint)
    of_option = zip(FILTERS, fields(Filters), strict=True)
    return Filters(**{item.name: getattr(filters, item.name) for option, item in of_option if option in known})


def _check(
    place: Place,
    filters: Filters,
    reverse: bool,
    follow: bool,
    count: bool,
    slots: bool,
    output_format: Format | None,
    style: Style,
) -> None:
    """Raise UsageError for options that do not fit each other or the place."""
    if follow and (place.kind != "commitlog" or reverse or count):
        raise UsageError("--follow is for a commit log, without --reverse and --count", file=place.path)
    if slots and place.kind != "index":
        raise UsageError("--slots is for index files", file=place.path)
    if style.json and output_format not in (None, "json"):
        raise UsageError(f"--json and --format {output_format} ask for two things")
    if place.kind == "index" and (filters.keys or filters.tags) and not filters.topics:
        raise UsageError("an index knows a key by the hash of its topic and itself: give --topic too")
    if place.kind == "index" and filters.topics and not (filters.keys or filters.tags):
        raise UsageError("an index knows a topic only with a key: give --key or --tag too")


def is_given(option: str) -> bool:
    """Whether an option stands on the command line; in the environment it waits for a path that it fits."""
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


def spelt(name: str) -> str:
    """An option's name on the command line."""
    return {"as_hex": "hex", "output_format": "format"}.get(name, name.replace("_", "-"))
