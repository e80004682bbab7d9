"""The commands that go on from an overview."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from rmqtool.inspect.overview import Overview
from rmqtool.inspect.summary import group_failures, out_of_range
from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX
from rmqtool.show.output import note


def note_next(overview: Overview, *, is_scanned: bool) -> None:
    """Tell on standard error which commands go on from here; findings name their own."""
    if not overview.log.files:
        return
    store, conf = overview.store, overview.store.conf
    options = f" --broker-conf {quote(conf.path)}" if conf.path else ""
    note("")
    for label, command in _look_closer(overview):
        note(f"{label}: {command}{options}")
    note(f"messages one by one: rmqtool inspect {quote(str(store.commit_log_directories[0]))}{options} --limit 10")
    if not is_scanned:
        note(f"counts from every record: rmqtool inspect {quote(str(store.root))}{options} --scan")


def _look_closer(overview: Overview) -> Iterator[tuple[str, str]]:
    """What of the tables is odd, with the command that looks closer; of each sort the first."""
    store = overview.store
    outside = [item.group for item in overview.committed.offsets if out_of_range(overview, item)]
    if outside and store.layout != "dledger":
        yield (
            f"offsets of {_groups(outside)} out of range",
            f"rmqtool query {quote(str(store.root))} --group {quote(outside[0])}",
        )
    dead = [found.group for found in group_failures(overview) if found.dead_letter_messages]
    if dead:
        topic = f"{DEAD_LETTER_PREFIX}{dead[0]}"
        log = quote(str(store.commit_log_directories[0]))
        yield f"dead letters of {_groups(dead)}", f"rmqtool inspect {log} --topic {quote(topic)}"


def _groups(names: list[str]) -> str:
    count = len(set(names))
    return f"{count} group{'' if count == 1 else 's'}"
