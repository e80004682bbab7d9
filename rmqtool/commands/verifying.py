"""Progress bars over jobs, and the options that the next commands need: shared by commands that verify."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rmqtool.library.repeated_options import repeated_options
from rmqtool.show.output import Style

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqtool.base.errors import RmqtoolError
    from rmqtool.base.parallel import WorkerPool
    from rmqtool.rules.versions import Version
    from rmqtool.scan.reader import Event
    from rmqtool.show.progress import ByteProgress
    from rmqtool.store.snapshot import Snapshot
    from rmqtool.verify.part_result import PartResult
    from rmqtool.verify.verification import Verification


@contextmanager
def progress_bar(style: Style, title: str) -> Iterator[Callable[[int, int], None]]:
    """What a job calls with the bytes that it has read, and with all there are; the first call begins a bar."""
    bar: ByteProgress | None = None
    with ExitStack() as stack:

        def progress(done: int, total: int) -> None:
            from rmqtool.show.progress import byte_progress

            nonlocal bar
            bar = bar or stack.enter_context(byte_progress(title, total, style=style))
            bar.update(done)

        yield progress


def run_verification(
    style: Style, verification: Verification, pool: WorkerPool[PartResult] | None = None, title: str = "verifying"
) -> None:
    """Verify under a progress bar; KeyboardInterrupt leaves what was found until then."""
    from rmqtool.show.progress import byte_progress

    done = 0
    with byte_progress(title, verification.total_bytes, style=style) as bar:

        def progress(size: int) -> None:
            nonlocal done
            done += size
            bar.update(done)

        verification.run(progress, pool)


def scanned_events(style: Style, snapshot: Snapshot, unread: list[RmqtoolError]) -> Iterator[Event]:
    """All events of the log under a progress bar; files that cannot be read are added to `unread`."""
    from rmqtool.inspect.log_statistics import events_of
    from rmqtool.show.progress import byte_progress
    from rmqtool.store.commit_log import log_start

    first = log_start(snapshot.log.files)
    with byte_progress("reading the commit log", snapshot.log.size, style=style) as progress:
        for event in events_of(snapshot, unread):
            yield event
            progress.update(event.physical_offset + event.size - first)


def recorded_options(conf: str | None, version: Version | None) -> tuple[str, ...]:
    """As `repeated_options`, to be read later and from another directory: an undo prints them."""
    return repeated_options(conf and os.path.abspath(conf), version)
