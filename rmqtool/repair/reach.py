"""Directories of a store in which no repair replaces files: outside of it, after a link, or on another disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from rmqtool.repair.places import name_in_store
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONFIG, CONSUME_QUEUE, INDEX, Store

Replaced = Literal["neutralise", "queues", "index", "config"]
"""The treatments for which a repair replaces files of one part of the store."""


def out_of_reach(store: Store, treatment: Replaced) -> tuple[Path, ...]:
    """The directories that a treatment is about and in which no transaction replaces files; missing ones are none.

    A link is one of them also where nothing is behind it, as that to a disk that is not mounted.
    """
    found = (each for each in _directories(store, treatment) if each.is_dir() or os.path.islink(str(each)))
    return tuple(each for each in found if not name_in_store(store, each / "0"))


def _directories(store: Store, treatment: Replaced) -> tuple[Path, ...]:
    if treatment == "neutralise":
        return store.log_directories
    names = {"queues": (CONSUME_QUEUE, BATCH_CONSUME_QUEUE), "index": (INDEX,), "config": (CONFIG,)}[treatment]
    return tuple(store.root / name for name in names)
