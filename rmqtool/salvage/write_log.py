"""The files of the new log: records copied, dummy records and blanks between them. Functions raise OSError."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

from rmqtool.base.direct_copy import COPY_SIZE, DirectCopy, exceeds_page_cache
from rmqtool.base.errors import ChangedError
from rmqtool.base.files import InputFile, RateLimit
from rmqtool.base.new_files import copy_range, create_file, set_time, write_all
from rmqtool.formats.file_name import file_name
from rmqtool.formats.message import build_blank
from rmqtool.salvage.carve import Progress, no_progress
from rmqtool.salvage.layout import LogFile
from rmqtool.salvage.plan import SalvagePlan
from rmqtool.salvage.sources import Sources
from rmqtool.scan.inert_records import filling

_PAGE = 4096


def write_log(
    plan: SalvagePlan, directory: Path, limit: RateLimit | None = None, progress: Progress = no_progress
) -> None:
    """Write the files into `directory`; their modification times are the store times of their last messages.

    Raises ChangedError where a source has become shorter than it was.
    """
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        progress(done)

    directory.mkdir(parents=True, exist_ok=True)
    is_direct = exceeds_page_cache(plan.size)
    with Sources(plan.inputs.files, plan.layout.file_size) as sources:
        for file in plan.layout.files:
            path = directory / file_name(file.start_offset)
            descriptor = create_file(path, plan.layout.file_size)
            try:
                with DirectCopy(path) if is_direct else nullcontext() as direct:
                    _write(file, descriptor, sources, direct, limit, add)
                _fill(file, descriptor, plan.layout.file_size)
                set_time(descriptor, file.timestamp)
            finally:
                os.close(descriptor)


def _write(
    file: LogFile,
    descriptor: int,
    sources: Sources,
    direct: DirectCopy | None,
    limit: RateLimit | None,
    progress: Progress,
) -> None:
    """Copy the records of a file, with `direct` as far as that can be done."""
    for extent in file.copies:
        source, start = sources.file(int(extent["input"])), int(extent["position"])
        shift = int(extent["physical_offset"]) - file.start_offset - start
        for position, size in _pieces(start, start + int(extent["size"])):
            if limit:
                limit.spend(size)
            done = direct.copy(source, position, size, position + shift) if direct else 0
            _copy(source, position + done, size - done, descriptor, position + done + shift)
            progress(size)


def _pieces(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Position and size of the pieces in which an extent is copied: whole pages, but for the first and the last one."""
    borders = sorted(
        {start, end, *(at for at in (-(-start // _PAGE) * _PAGE, end // _PAGE * _PAGE) if start < at < end)}
    )
    for low, high in pairwise(borders):
        for position in range(low, high, COPY_SIZE):
            yield position, min(COPY_SIZE, high - position)


def _copy(source: InputFile, position: int, size: int, descriptor: int, to: int) -> None:
    done = copy_range(source, position, size, descriptor, to)
    if done < size:
        rest = source.read(position + done, size - done)
        if len(rest) < size - done:
            raise ChangedError("the file became shorter while it was read", file=source.path)
        write_all(descriptor, rest, to + done)


def _fill(file: LogFile, descriptor: int, file_size: int) -> None:
    for gap in file.gaps:
        for offset, data in filling(gap.physical_offset, gap.size, gap.timestamp, ends_file=False):
            write_sparse(descriptor, data, offset - file.start_offset)
    if file.blank is not None:
        position = file.blank - file.start_offset
        write_all(descriptor, build_blank(file_size - position), position)


def write_sparse(descriptor: int, data: bytes, position: int) -> None:
    """Write what is not zero: whole pages of a dummy record's body stay holes. Raises OSError."""
    view = memoryview(data)
    for start in range(0, len(data), _PAGE):
        page = view[start : start + _PAGE]
        if any(page):
            write_all(descriptor, page, position + start)
