"""The stores of whole brokers that keep something in RocksDB."""

_QUEUES_IN_ROCKSDB = {"storeType": "defaultRocksDB"}
_TWICE = {"rocksdbCQDoubleWriteEnable": "true"}
ROCKSDB = {
    "more/5.1.4-rocksdb": _QUEUES_IN_ROCKSDB,
    "more/5.2.0-rocksdb": _QUEUES_IN_ROCKSDB,
    "more/5.3.3-rocksdb": _QUEUES_IN_ROCKSDB,
    "more/5.3.3-rocksdb-twice": _TWICE,
    "more/5.3.3-rocksdb-second-config": {"configManagerVersion": "v2"},
    "more/5.4.0-rocksdb": _QUEUES_IN_ROCKSDB,
    "more/5.4.0-rocksdb-twice": _TWICE,
    "more/5.5.0-rocksdb-twice": {**_TWICE, "combineCQUseRocksdbForLmq": "true"},
    "more/5.5.0-rocksdb": _QUEUES_IN_ROCKSDB,
    "more/5.5.0-rocksdb-second-config": {**_QUEUES_IN_ROCKSDB, "configManagerVersion": "v2"},
    "more/5.5.1-rocksdb": _QUEUES_IN_ROCKSDB,
    "more/5.5.1-rocksdb-selected": {
        **_TWICE,
        "combineCQUseRocksdbForLmq": "true",
        "rocksdbCQSelectiveDoubleWriteEnable": "true",
    },
    "more/5.5.0-rocksdb-single": {
        **_QUEUES_IN_ROCKSDB,
        "useSingleRocksDBForAllConfigs": "true",
        "useSeparateStorePathForRocksdbCQ": "true",
    },
    "more/5.5.0-rocksdb-side": {
        "indexRocksDBEnable": "true",
        "timerRocksDBEnable": "true",
        "transRocksDBEnable": "true",
        "popConsumerKVServiceInit": "true",
        "popConsumerKVServiceEnable": "true",
    },
}
"""The settings of whole brokers that keep something in RocksDB; their oracles are what the users have."""

UNREAD = {"consumequeue.unread-batches"}
"""What is noted of a sound one whose batch queue is read from RocksDB: its users do not have every batch."""
