"""What a copy must not keep when it becomes another broker's store, or that of a slave of the same broker.

`BrokerMetadata`, `EpochFileCache`, `CheckpointFile`: texts that controllers and high availability go by.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from rmqtool.base.errors import UsageError
from rmqtool.base.files import read_all
from rmqtool.copy.settle import write_checkpoint_fields
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.checkpoint import read_checkpoint
from rmqtool.store.config_json import load_config
from rmqtool.store.dledger_node import EPOCH_FILE
from rmqtool.store.store import CHECKPOINT, CONFIG, Store

SLAVE, CONTROLLER = "slave", "controller"
"""A replica: with a fixed role, or with the one that the controller gives it."""

_IDENTITY = ("brokerIdentity", "brokerIdentity.bak", "brokerIdentity-temp", "brokerIdentity-temp.bak")
_EPOCHS = (EPOCH_FILE, f"{EPOCH_FILE}.bak")
_MAPPINGS = "topicQueueMapping.json"
_MAX_TEXT = 64 << 20  # bytes
_CRC_MASK = 0x7FFFFFFF


def require_possible(store: Store, identity: str | None) -> None:
    """Raise UsageError where a store cannot become another broker's: static topics name the broker."""
    if identity is None or identity in (SLAVE, CONTROLLER):
        return
    path = store.root / CONFIG / _MAPPINGS
    tables = [value for value in load_config(path).content.values() if isinstance(value, dict)]
    if any(isinstance(each, dict) and "bname" in each for table in tables for each in table.values()):
        raise UsageError(
            "static topics are mapped to queues of this broker by its name: another broker cannot use its store",
            file=path,
            hint="map the topics to the new broker first (mqadmin updateStaticTopic); --as slave does not need that",
        )


def take_identity(root: Path, store: Store, identity: str) -> None:
    """Remove from the copy at `root` what names the broker that it is a copy of.

    A replica keeps epochs, by which it finds where its log and the master's part; another broker has none of them.
    """
    for name in _IDENTITY:
        (root / name).unlink(missing_ok=True)
    if identity in (SLAVE, CONTROLLER):
        return
    for name in _EPOCHS:
        (root / name).unlink(missing_ok=True)
    fields = read_checkpoint(store)
    if fields:
        write_checkpoint_fields(root / CHECKPOINT, {**fields, "master_flushed_offset": 0, "confirm_physical_offset": 0})


def cut_epochs(root: Path, end: int) -> None:
    """Drop the epochs that begin at or after the end of the log: a replica would wait for them, or cut by them."""
    for name in _EPOCHS:
        found = epochs_before(root / name, end)
        if found:
            (root / name).write_bytes(found)
        elif found is not None:
            (root / name).unlink()


def epochs_before(path: Path, end: int) -> bytes | None:
    """A file of epochs without those that begin at or after an offset; None where it has none of them.

    Without a single one it is empty, and no file: a broker writes no empty list.
    """
    if not path.exists():
        return None
    lines = read_all(path, _MAX_TEXT).decode("ascii", "replace").splitlines()
    entries = [line for line in lines[2:] if line.strip()]
    kept = [line for line in entries if not line.rpartition("-")[2].isdecimal() or _start_of(line) < end]
    if kept == entries:
        return None
    body = "".join(f"{line}\n" for line in kept)
    return f"{len(kept)}\n{zlib.crc32(body.encode()) & _CRC_MASK}\n{body}".encode("ascii") if kept else b""


def _start_of(line: str) -> int:
    return int(line.rpartition("-")[2])


def settings_of(identity: str, conf: BrokerConf) -> str:
    """What broker.conf of the new broker must say."""
    name = conf.text("brokerName")
    same = f"brokerName={name}" if name else "the same brokerName"
    if identity == SLAVE:
        return f"brokerRole=SLAVE, a brokerId above 0 and {same}"
    if identity == CONTROLLER:
        return f"enableControllerMode=true and {same}; the controller gives it an id"
    return f"brokerName={identity}"
