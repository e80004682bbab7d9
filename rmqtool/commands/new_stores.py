"""Shared by the commands that make a new store: its queues and index, and whose it is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rmqtool.base.errors import ChangedError, UnreadableError, WrongKindError
from rmqtool.show.output import Style, note

if TYPE_CHECKING:
    from rmqtool.rebuild.options import RebuildOptions
    from rmqtool.rebuild.plan import RebuildPlan
    from rmqtool.salvage.new_store import NewStore
    from rmqtool.store.store import Store


def derive(style: Style, sources: Iterable[Store], new: NewStore, options: RebuildOptions) -> RebuildPlan:
    """Write queues and index of the new log, beside the queues of the first of `sources` that can be read."""
    from rmqtool.rebuild.output_tree import write_output
    from rmqtool.rebuild.source import open_source
    from rmqtool.show.progress import byte_progress

    for store in sources:
        try:
            with byte_progress("writing queues and index", store.commit_log().size, style=style) as progress:
                return write_output(open_source(store, options), new.empty_derived(), progress.update)
        except (UnreadableError, WrongKindError) as error:
            if store.root == new.directory:
                raise
            note(f"the queues of {store.root} are left out: {error}")
    raise ChangedError("the new log is not there any more", file=new.directory)


def owner_of(stores: Sequence[Store]) -> tuple[int, int] | None:
    """The user and group of the first source, where this process may give files away."""
    if not stores or os.geteuid() != 0:
        return None
    status = stores[0].root.stat()
    return status.st_uid, status.st_gid
