"""The kind of a path in a store, by its folders' names alone (`StorePathConfigHelper`, `BrokerPathConfigHelper`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rmqtool.base.paths import absolute
from rmqtool.formats.file_name import is_index_name, start_offset_of
from rmqtool.formats.timer_wheel import is_wheel_name
from rmqtool.store.store import (
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    DLEDGER_DATA,
    DLEDGER_INDEX,
    DLEDGER_PREFIX,
    INDEX,
)

Kind = Literal[
    "store", "commitlog", "consumequeue", "batchconsumequeue", "consumequeue-ext", "index", "checkpoint", "abort",
    "lock", "config", "timerwheel", "timerlog", "timercheck", "compaction", "compaction-queue", "dledger",
    "dledger-index", "text", "rocksdb",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)

COMPACTION = "compaction"
COMPACTION_LOG = "compactionLog"
COMPACTION_QUEUE = "compactionCq"
COMPACTION_CHECKPOINT = "position-checkpoint"
TIMER_LOG = "timerlog"
TIMER_CHECK = "timercheck"

QUEUE_KINDS: dict[str, Kind] = {
    CONSUME_QUEUE: "consumequeue",
    BATCH_CONSUME_QUEUE: "batchconsumequeue",
    CONSUME_QUEUE_EXT: "consumequeue-ext",
    COMPACTION_LOG: "compaction",
    COMPACTION_QUEUE: "compaction-queue",
}
"""Folders with a folder for each topic, and in there one for each queue."""

_FLAT_KINDS: dict[str, Kind] = {COMMIT_LOG: "commitlog", INDEX: "index", TIMER_LOG: "timerlog", CONFIG: "config"}
_COMPACTING = ("compacting", "replicating")  # folders in a queue's folder, while a compaction runs
_FILE_KINDS: dict[str, Kind] = {
    CHECKPOINT: "checkpoint",
    "abort": "abort",
    "abort.bak": "abort",
    "lock": "lock",
    TIMER_CHECK: "timercheck",
    "timermetrics": "config",
    "transactionMetrics": "config",
    COMPACTION_CHECKPOINT: "config",
    "epochFileCheckpoint": "text",
    "brokerIdentity": "text",
    "brokerIdentity-temp": "text",
    "broker.properties": "text",
    "currterm": "text",
}
_CONFIG_NAME = re.compile(r".+\.json", re.ASCII)
_QUEUE_ID = re.compile(r"\d{1,9}", re.ASCII)
_BACKUP = ".bak"


@dataclass(frozen=True)
class Named:
    """The kind of a path, its store, and for a queue its topic and queue id, as far as its names give them."""

    kind: Kind
    root: Path
    topic: str | None = None
    queue_id: int | None = None


def named_by(path: Path, *, is_directory: bool) -> Named | None:
    """The kind of `path` by its own name and those of the folders above; None when they do not say.

    A link is resolved only where its own name does not say.
    """
    for candidate in dict.fromkeys((absolute(path), path.resolve())):
        for rule in (_in_queue_folder, _in_dledger, _in_store):
            if named := rule(candidate, is_directory=is_directory):
                return named
    return None


def is_config_name(name: str) -> bool:
    """Whether a file in `config/` is one of the broker's JSON files, or the ``.bak`` of one."""
    plain = name.removesuffix(_BACKUP)
    return _CONFIG_NAME.fullmatch(plain) is not None or _FILE_KINDS.get(plain) == "config"


def _in_queue_folder(path: Path, *, is_directory: bool) -> Named | None:
    """``BASE``, ``BASE/TOPIC``, ``BASE/TOPIC/QUEUE`` and a file in there; of compactions one folder deeper too.

    A topic may have the name of such a folder: the outermost counts.
    """
    for base in reversed([path, *path.parents][:5]):
        kind, names = QUEUE_KINDS.get(base.name), path.relative_to(base).parts
        if kind is None:
            continue
        is_compaction = kind.startswith("compaction")
        below = [name for depth, name in enumerate(names) if not (is_compaction and depth == 2 and name in _COMPACTING)]
        if not is_directory and (len(below) != 3 or start_offset_of(below.pop()) is None):
            continue
        if len(below) > 2 or (len(below) == 2 and not _QUEUE_ID.fullmatch(below[1])):
            continue
        root = base.parent.parent if is_compaction else base.parent
        return Named(kind, root, below[0] if below else None, int(below[1]) if len(below) == 2 else None)
    return None


def _in_dledger(path: Path, *, is_directory: bool) -> Named | None:
    """``dledger-ID``, its ``data`` and ``index``, and files in there."""
    chain = [path, *path.parents][:3]
    at = next((n for n, folder in enumerate(chain) if folder.name.startswith(DLEDGER_PREFIX)), None)
    if at is None:
        return None
    root, below = chain[at].parent, path.relative_to(chain[at]).parts
    if is_directory and below in ((), (DLEDGER_DATA,)):
        return Named("dledger", root)
    if below[:1] == (DLEDGER_INDEX,) and (is_directory or len(below) == 2):
        return Named("dledger-index", root)
    if below[:1] == (DLEDGER_DATA,) and not is_directory:
        return Named("dledger", root)
    return Named("text", root) if not is_directory and len(below) == 1 else None


def _in_store(path: Path, *, is_directory: bool) -> Named | None:
    if is_directory:
        kind = _FLAT_KINDS.get(path.name)
        return Named(kind, path.parent) if kind else None
    folder, name = path.parent, path.name
    kind = _FLAT_KINDS.get(folder.name)
    if kind == "index" and is_index_name(name):
        return Named(kind, folder.parent)
    if kind in ("commitlog", "timerlog") and start_offset_of(name) is not None:
        return Named(kind, folder.parent)
    in_folder = kind == "config" or folder.name == COMPACTION
    root = folder.parent if in_folder else folder
    if kind == "config" and is_config_name(name):
        return Named("config", root)
    if is_wheel_name(name):
        return Named("timerwheel", root)
    plain = _FILE_KINDS.get(name) or _FILE_KINDS.get(name.removesuffix(_BACKUP))
    return Named(plain, root) if plain else None
