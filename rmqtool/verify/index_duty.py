"""The keys that a broker must have put into index files, so that a missing one is lost (`IndexService`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.lock import ABORT_FILE
from rmqtool.store.snapshot import Snapshot

_MARGIN = 3000  # StoreCheckpoint#getMinTimestamp, ms
_SETTINGS = ("messageIndexEnable", "indexFileWriteEnable")  # the second since 5.4.0


@dataclass(frozen=True)
class IndexDuty:
    """The rules by which a missing key is lost.

    `switched_off` is the setting by which the broker writes no index file, or None. `derived_from` is the store
    timestamp, epoch ms, from which on the next start puts all keys again after an unclean stop, or None.
    """

    switched_off: str | None = None
    derived_from: int | None = None

    @classmethod
    def of(cls, snapshot: Snapshot) -> IndexDuty:
        """The rules by broker.conf, `abort` and the checkpoint."""
        off = _switched_off(snapshot.store.conf)
        if snapshot.holder is not None or not (snapshot.store.root / ABORT_FILE).exists():
            return cls(off)
        try:
            checkpoint = snapshot.checkpoint or {}
        except RmqtoolError:
            checkpoint = {}
        flushed = min(checkpoint.get(f"{name}_message_timestamp", 0) for name in ("physic", "logics"))
        return cls(off, max(0, flushed - _MARGIN))

    def lost(self, timestamps: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The rows of missing keys that no start will put, by the store timestamps of their messages."""
        if self.switched_off is not None:
            return np.zeros(len(timestamps), dtype=np.bool_)
        if self.derived_from is None:
            return np.ones(len(timestamps), dtype=np.bool_)
        return timestamps < self.derived_from

    @property
    def effect_of_others(self) -> str:
        """The effect of missing keys that are not lost."""
        if self.switched_off is not None:
            return f"none of its own: with {self.switched_off}=false no index file is written"
        if self.derived_from is not None:
            return "the next start puts these keys into the index"
        return "queries by tag, which brokers answer since 5.4.0, do not find these messages"


def _switched_off(conf: BrokerConf) -> str | None:
    return next((name for name in _SETTINGS if (conf.text(name) or "true").lower() == "false"), None)
