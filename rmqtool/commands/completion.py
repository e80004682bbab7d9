"""Completion of words: what only the store knows, its topics, queues and groups, and names that there are many of."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

COMPLETE = "_RMQTOOL_COMPLETE"  # click's: a shell asks for the completion of a line

_QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue")
_PATH_ARGUMENTS = ("path", "store")
_OFFSET_FILES = ("config/consumerOffset.json", "config/lmqConsumerOffset.json")
_GROUP = re.compile(r'"[^"@]+@([^"@]+)"\s*:')
_MOST = 1 << 22  # bytes of a file of offsets that are looked at
_DEEPEST = 5  # folders from a file up to its store


def complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Topics with a consume queue that begin with what was typed."""
    names = {name for folder in _folders(ctx) for name in _names(folder)}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def complete_queue(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Numbers of queues, of the topics on the command line if there are any."""
    topics = ctx.params.get("topic") or ()
    queue_ids = {
        int(queue)
        for folder in _folders(ctx)
        for topic in topics or _names(folder)
        for queue in _names(folder / topic)
        if queue.isascii() and queue.isdigit()
    }
    return [CompletionItem(str(queue_id)) for queue_id in sorted(queue_ids) if str(queue_id).startswith(incomplete)]


def complete_group(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Groups that have committed an offset."""
    roots = {folder.parent for folder in _folders(ctx)}
    names = {name for root in roots for file in _OFFSET_FILES for name in _GROUP.findall(_text(root / file))}
    return _beginning(names, incomplete)


def complete_from(words: Callable[[], Iterable[str]]) -> Callable[..., list[CompletionItem]]:
    """Completes one of the `words`, which are asked for then; of several with commas between the last."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        return _beginning((f"{before}{comma}{word}" for word in words() if word.startswith(last)), incomplete)

    return complete


def time_zones() -> Iterable[str]:
    """The names of this machine's time zones."""
    from zoneinfo import available_timezones

    return available_timezones()


def releases() -> Iterable[str]:
    """The releases whose rules are known."""
    from rmqtool.rules.versions import RELEASES

    return map(str, RELEASES)


def columns() -> Iterable[str]:
    """The columns of an export."""
    from rmqtool.store.message_reader import EXPORT_COLUMNS, WISHED_COLUMNS

    return (*EXPORT_COLUMNS, *WISHED_COLUMNS)


def compressions() -> Iterable[str]:
    """The compressions of Parquet, which has the most."""
    from rmqtool.export.options import CODECS

    return CODECS


def codes() -> Iterable[str]:
    """The codes of findings, and what they begin with."""
    from rmqtool.findings.catalogue import CATALOGUE

    return {*CATALOGUE, *(code.partition(".")[0] for code in CATALOGUE)}


def _beginning(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in sorted(words) if word.startswith(incomplete)]


def _folders(ctx: click.Context) -> Iterator[Path]:
    """The folders of consume queues of the store that the command line names, or of one above."""
    # While an option waits for its value, click leaves what stands before it unparsed.
    words = [ctx.params.get(name) for name in _PATH_ARGUMENTS] + list(ctx.args)
    given = next((word for word in words if word), None)
    if given is None:
        return
    path = Path(os.path.abspath(os.path.expanduser(given)))
    for root in [path, *path.parents][:_DEEPEST]:
        folders = [root / name for name in _QUEUE_FOLDERS if os.path.isdir(root / name)]
        if folders and root.name not in _QUEUE_FOLDERS:
            yield from folders
            return


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []  # a shell has no place for an error


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST)
    except OSError:
        return ""
