"""The signs that a store shows of the version that wrote it: a lower bound, never an upper one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from rmqtool.config_json import ConfigFile, load_config
from rmqtool.errors import RmqtoolError
from rmqtool.files import read_all
from rmqtool.index import IndexFile
from rmqtool.lock import ABORT_FILE
from rmqtool.offsets import CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET, CommittedOffsets
from rmqtool.queues import Queue
from rmqtool.store import BATCH_CONSUME_QUEUE, CONFIG, CONSUME_QUEUE, SEPARATE_ROCKSDB_QUEUES, Store, holds_rocksdb
from rmqtool.system_topics import LMQ_PREFIX

_BY_PATH = {
    "abort.bak": "abort.bak",
    "timerwheel": "timer",
    "timerlog": "timer",
    BATCH_CONSUME_QUEUE: "batch-queue",
    "compaction": "compaction",
    "rocksdbstore": "rocksdbstore",
    SEPARATE_ROCKSDB_QUEUES: "separate-rocksdb-queues",
    f"{CONFIG}/{LMQ_CONSUMER_OFFSET}": "lmq-consumer-offset",
    f"{CONFIG}/timercheck": "timer",
    f"{CONFIG}/topicQueueMapping.json": "config-5.0",
    f"{CONFIG}/consumerOrderInfo.json": "config-5.0",
    f"{CONFIG}/messageRequestMode.json": "config-5.0",
    f"{CONFIG}/transactionMetrics": "transaction-metrics",
}
_BY_CHECKPOINT = {
    "master_flushed_offset": "checkpoint-master-flushed-offset",
    "confirm_physical_offset": "checkpoint-confirm-offset",
    "logics_physical_offset": "checkpoint-logics-offset",
}


def version_signs(
    store: Store,
    checkpoint: dict[str, int] | None,
    queues: Iterable[Queue],
    index_files: Iterable[IndexFile],
    committed: CommittedOffsets,
) -> set[str]:
    """Names of the signs that files, checkpoint, configuration, names of queues and index headers show."""
    found = {*_path_signs(store.root), *_config_signs(store.root / CONFIG, committed.file)}
    if any(queue.topic.startswith(LMQ_PREFIX) for queue in queues):
        found.add("lmq-queue")
    found.update(sign for name, sign in _BY_CHECKPOINT.items() if checkpoint and checkpoint[name] > 0)
    if any(0 < file.hash_slot_count < file.keys for file in index_files):
        found.add("index-slots-counted-once")
    return found


def _path_signs(root: Path) -> Iterator[str]:
    yield from (sign for path, sign in _BY_PATH.items() if os.path.exists(root / path))
    if holds_rocksdb(root / CONSUME_QUEUE):
        yield "rocksdb-queues"
    try:
        if read_all(root / ABORT_FILE, 1):
            yield "abort-process-id"
    except RmqtoolError:
        return  # there is none, or it cannot be read: no sign


def _config_signs(config: Path, offsets: ConfigFile) -> Iterator[str]:
    is_plain = offsets.path is not None and offsets.path.name.startswith(CONSUMER_OFFSET)
    plain = offsets if is_plain else load_config(config / CONSUMER_OFFSET)
    for content in (load_config(config / "topics.json").content, plain.content):
        version = content.get("dataVersion")
        if isinstance(version, dict) and "stateVersion" in version:
            yield "state-version"
        if "pullOffsetTable" in content:
            yield "pull-offset-table"
