"""Directories that a broker opens in place of the store's, since it reads broker.conf letter by letter.

Before 5.2.0 blanks at the end of a path are part of it (`MixAll#properties2Object`).
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.store.store import Store
from rmqtool.store.which_log import log_directory

ROOT_SETTING, LOG_SETTING = "storePathRootDir", "storePathCommitLog"


def other_root_opened(store: Store, version: Version) -> str | None:
    """The root that a broker opens in place of the store's; None where it is the store's, or of another machine."""
    meant, read = _read_twice(store.conf, ROOT_SETTING, version)
    if read is None or meant is None or not _is_same(meant, store.root) or _is_same(read, store.root):
        return None
    return read


def other_log_opened(store: Store, version: Version) -> str | None:
    """The directory in which a broker looks for the log in place of the store's; None where it is the store's."""
    meant, read = _read_twice(store.conf, LOG_SETTING, version)
    if read is None or meant is None or "," in meant:
        return None
    own, opened = log_directory(store.root, meant), log_directory(store.root, read)
    is_own = any(_is_same(str(own), each) for each in store.commit_log_directories)
    return read if is_own and not _is_same(str(opened), own) and not _has_files(opened) else None


def _read_twice(conf: BrokerConf, name: str, version: Version) -> tuple[str | None, str | None]:
    """A path as it is meant, without blanks around it, and as a broker takes it; the latter None where they agree."""
    meant, read = (conf.settings.get(name) or "").strip() or None, conf.for_release(version).text(name)
    return meant, None if read == meant else read


def _is_same(path: str, other: Path) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)


def _has_files(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())
