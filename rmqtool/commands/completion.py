"""Completion of words that only the store knows: its topics, and the queues of a topic."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

COMPLETE = "_RMQTOOL_COMPLETE"  # click's: a shell asks for the completion of a line

_QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue")
_PATH_ARGUMENTS = ("path", "store")
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
