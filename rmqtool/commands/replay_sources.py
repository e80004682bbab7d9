"""What `rmqtool replay` reads: messages of a store or of an export, and how they are rewritten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rmqtool
from rmqtool.base.byte_size import byte_size
from rmqtool.base.errors import NotAStoreError, RmqtoolError, UsageError
from rmqtool.show.output import note

if TYPE_CHECKING:
    from rmqtool.replay.rewriting import Rewriting
    from rmqtool.replay.run import Selection
    from rmqtool.scan.filters import Filters
    from rmqtool.store.snapshot import Snapshot

_EXPECTED = "neither a store (a directory with commitlog/), nor the directory or a Parquet file of an export"
_NAMES_FOUND = 4  # of a directory, that are shown
_MOST_DELAYED = 1_000_000  # messages that wait, whose times are kept in memory


@dataclass(frozen=True)
class Wanted:
    """What the options ask for."""

    path: Path
    filters: Filters
    given: dict[str, Any]

    @property
    def delays(self) -> bool:
        """Whether messages that wait are sent."""
        return bool(self.given["delays"] != "leave-out")


def selections_of(wanted: Wanted) -> list[Selection]:
    """The messages; raises UsageError, NotAStoreError or UnreadableError."""
    from rmqtool.replay.parquet_source import ParquetSource, is_parquet
    from rmqtool.replay.run import Selection
    from rmqtool.store.store import COMMIT_LOG

    rewriting = _rewriting(wanted)
    if not (wanted.path / COMMIT_LOG).exists() and is_parquet(wanted.path):
        if wanted.given["unconsumed_by"] or wanted.delays:
            option = "--unconsumed-by" if wanted.given["unconsumed_by"] else "--delays"
            raise UsageError(f"{option} needs the store: an export does not say it", file=wanted.path)
        filters, rewriting = _dead_letters(wanted, rewriting)
        source = ParquetSource(wanted.path, filters)
        if not source.files:
            raise UsageError("it holds no Parquet files", file=wanted.path)
        return [Selection(source, rewriting)]
    return [*_of_store(wanted, rewriting)]


def _of_store(wanted: Wanted, rewriting: Rewriting) -> Iterator[Selection]:
    from rmqtool.replay.rewriting import DELAYED_TOPICS
    from rmqtool.replay.run import Selection
    from rmqtool.replay.sources import StoreSource, Unconsumed
    from rmqtool.scan.topic_choice import TopicChoice
    from rmqtool.store.named_stores import NamedStore
    from rmqtool.store.splits import find_source

    given = wanted.given
    try:
        snapshot = rmqtool.open(
            wanted.path,
            broker_conf=given["broker_conf"],
            broker_version=given["broker_version"],
            limit_rate=given["limit_rate"],
        ).snapshot
    except NotAStoreError as error:
        raise NotAStoreError(f"{_EXPECTED}; found: {_found(wanted.path)}", file=wanted.path, hint=error.hint) from error
    store, rate = snapshot.store, snapshot.bytes_per_second
    filters, unconsumed = wanted.filters, None
    log = find_source(NamedStore("", store), filters.start, filters.stop)
    choice = filters.topic_choice
    if given["unconsumed_by"]:
        unconsumed = Unconsumed.of_group(snapshot, given["unconsumed_by"])
        topics = tuple(topic for topic in unconsumed.topics if topic in choice)
        if not topics:
            raise _no_group(snapshot, given["unconsumed_by"])
        _note_without_offset(unconsumed, snapshot)
        filters = replace(filters, topics=topics, excluded_topics=())
        rewriting = replace(rewriting, named=TopicChoice(topics))
    elif given["dead_letters_of"]:
        _require_group(snapshot, given["dead_letters_of"])
        filters, rewriting = _dead_letters(wanted, rewriting)
    if wanted.delays:
        filters = replace(filters, excluded_topics=(*filters.excluded_topics, *DELAYED_TOPICS))
    yield Selection(StoreSource(snapshot, log, filters, unconsumed, rate), rewriting)
    if wanted.delays:
        due = _due(snapshot)
        delayed = replace(wanted.filters, topics=DELAYED_TOPICS, excluded_topics=(), queue_ids=())
        chosen = replace(
            rewriting,
            due=due,
            keeps_due=given["delays"] == "keep",
            choice=choice,
            queue_ids=frozenset(wanted.filters.queue_ids),
        )
        yield Selection(StoreSource(snapshot, log, delayed, None, rate), chosen)


def _rewriting(wanted: Wanted) -> Rewriting:
    from rmqtool.replay.rewriting import Rewriting

    given, names = wanted.given, dict(wanted.given["to_topics"])
    return Rewriting(
        named=wanted.filters.topic_choice,
        only_topic=names.pop("", None),
        topics=names,
        to_group=given["to_retry_topic"],
        include_replays=given["include_replays"],
        keep_dispatch=given["keep_dispatch"],
        blank_for_empty=given["empty_bodies"] == "blank",
    )


def _dead_letters(wanted: Wanted, rewriting: Rewriting) -> tuple[Filters, Rewriting]:
    """Filters for the dead letters of a group, if they are asked for: topics are then those that they came from."""
    from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX
    from rmqtool.scan.topic_choice import TopicChoice

    group = wanted.given["dead_letters_of"]
    if not group:
        return wanted.filters, rewriting
    topics = (f"{DEAD_LETTER_PREFIX}{group}",)
    filters = replace(wanted.filters, topics=topics, excluded_topics=())
    return filters, replace(rewriting, named=TopicChoice(topics), choice=wanted.filters.topic_choice)


def _due(snapshot: Snapshot) -> dict[int, int]:
    """When each message that waits for a delay level or the timer is due, epoch ms, by its physical offset."""
    import time

    from rmqtool.base.tolerant import ReadErrors
    from rmqtool.pending.work import PendingRequest, pending_work

    now = time.time_ns() // 1_000_000
    request = PendingRequest(now, kinds=("delay", "lost-delay", "timer", "lost-timer"), limit=_MOST_DELAYED)
    work = pending_work(snapshot, ReadErrors(), request, lambda _: None)
    for unread in (*work.unread, *work.notes.unread):
        note(f"delayed messages may be missing: {unread}")
    rows = zip(*(work.messages.column(name).to_pylist() for name in ("physical_offset", "due_timestamp")), strict=True)
    due = {offset: time_due or now for offset, time_due in rows}
    if len(due) >= _MOST_DELAYED:
        raise UsageError(f"more than {_MOST_DELAYED} messages wait: send those of fewer topics at once")
    return due


def _found(path: Path) -> str:
    """What a path is that is neither store nor export."""
    from rmqtool.base.files import list_directory
    from rmqtool.inspect.file_kind import detect_kind, name_of

    if path.is_dir():
        names = [entry.name for entry in list_directory(path)]
        more = f" and {len(names) - _NAMES_FOUND} more" if len(names) > _NAMES_FOUND else ""
        return f"a directory with {', '.join(names[:_NAMES_FOUND])}{more}" if names else "an empty directory"
    if not path.is_file():
        return "neither a file nor a directory"
    kind = detect_kind(path)
    return name_of(kind) if kind else f"a file of {byte_size(path.stat().st_size)} that is not a Parquet file"


def _note_without_offset(unconsumed: Any, snapshot: Snapshot) -> None:
    queues = unconsumed.queues_without(snapshot)
    if queues:
        shown = ", ".join(f"{topic} {queue_id}" for topic, queue_id in queues[:5])
        note(f"the group has committed no offset of {len(queues)} queues ({shown}): all of them counts as not consumed")


def _require_group(snapshot: Snapshot, group: str) -> None:
    """Raise UsageError for a group of which the store shows nothing, where it shows others."""
    from rmqtool.query.groups import groups_of
    from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
    from rmqtool.store.rocksdb_config import load_table

    table = load_table(snapshot.store, "subscriptionGroup.json").content.get("subscriptionGroupTable")
    known = {*groups_of(snapshot), *(table if isinstance(table, dict) else ())}
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        known |= {topic.removeprefix(prefix) for topic in snapshot.topic_names if topic.startswith(prefix)}
    if known and group not in known:
        with_letters = sorted(topic.removeprefix(DEAD_LETTER_PREFIX) for topic in snapshot.topic_names
                              if topic.startswith(DEAD_LETTER_PREFIX))  # fmt: skip
        shown = f"groups with dead letters: {', '.join(with_letters[:8])}" if with_letters else None
        raise UsageError(f"the store has no group {group}", hint=shown)


def _no_group(snapshot: Snapshot, group: str) -> RmqtoolError:
    groups = sorted({each.group for each in snapshot.committed.offsets})
    shown = f"groups that have: {', '.join(groups[:8])}" if groups else None
    return UsageError(f"the group {group} has committed no offset of such a topic", hint=shown)
