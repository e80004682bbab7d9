"""Shared by the commands that make a new store: its queues and index, and whose it is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtool.base.errors import RmqtoolError, UnreadableError, WrongKindError
from rmqtool.show.output import Style

if TYPE_CHECKING:
    from rmqtool.rebuild.options import RebuildOptions
    from rmqtool.rebuild.plan import RebuildPlan
    from rmqtool.rules.releases import Releases
    from rmqtool.salvage.carry_over import Carried
    from rmqtool.salvage.new_store import NewStore
    from rmqtool.store.store import Store


def derive(
    style: Style, old: Store | None, sources: Iterable[Store], new: NewStore, options: RebuildOptions
) -> tuple[RebuildPlan, list[Carried]]:
    """Write queues and index of the new log, beside the queues of the first of `sources` that can be read.

    The rules are those of the releases that the `old` store shows: its index leads to nothing in the new log. Behind
    the plan come the queues that are left out.
    """
    from rmqtool.salvage.carry_over import Carried
    from rmqtool.store.store import CONSUME_QUEUE

    releases = _releases_of(old, options)
    left_out: list[Carried] = []
    *others, last = sources
    for store in others:
        try:
            return _derive(style, store, new, options, releases), left_out
        except (UnreadableError, WrongKindError) as error:  # noqa: PERF203 - once for each source
            problem = f"of {store.root} queues are left out whose messages the log does not hold: {error}"
            left_out.append(Carried(CONSUME_QUEUE, None, problem, is_unread=True))
    return _derive(style, last, new, options, releases), left_out


def _releases_of(old: Store | None, options: RebuildOptions) -> Releases | None:
    from rmqtool.store.snapshot import Snapshot

    with suppress(RmqtoolError):
        return Snapshot(old, options.version).releases if old else None
    return None


def _derive(
    style: Style, store: Store, new: NewStore, options: RebuildOptions, releases: Releases | None
) -> RebuildPlan:
    from rmqtool.rebuild.output_tree import write_output
    from rmqtool.rebuild.source import open_source
    from rmqtool.show.progress import byte_progress

    with byte_progress("writing queues and index", store.commit_log().size, style=style) as progress:
        return write_output(open_source(store, options, releases), new.empty_derived(), progress.update)


def cut_moved(rebuild: RebuildPlan, derived: Path, start: int) -> None:
    """Cut the queues in `derived` of which a log holds no message, whose messages from offset `start` on have moved.

    Raises UnsupportedError for a queue that was not derived from the log, OSError.
    """
    from rmqtool.rebuild.selection import directory_of
    from rmqtool.salvage.moved_queues import cut_queue, require_derived

    require_derived(rebuild.findings)
    for queue in rebuild.without_messages:
        if queue.kind != "rocksdb":
            cut_queue(queue.kind, derived / directory_of(queue.name, queue.kind), start)


def owner_of(stores: Sequence[Store]) -> tuple[int, int] | None:
    """The user and group of the first source, where this process may give files away."""
    if not stores or os.geteuid() != 0:
        return None
    status = stores[0].root.stat()
    return status.st_uid, status.st_gid
