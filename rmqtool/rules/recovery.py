"""The rules of recovery: how a start treats a store, by the broker's version and its configuration."""

from __future__ import annotations

from dataclasses import dataclass

from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.file_sizes import deletes_empty_last_file, leaves_out_wrong_sizes, log_file_size, queue_file_size
from rmqtool.rules.versions import (
    COMBINED_QUEUES,
    IPV6_HOSTS,
    LITE_TOPICS,
    MAGIC_CODE_V2_SINCE,
    NEGATIVE_SIZES_KNOWN,
    OLDEST,
    RECOVERED_FILES_LIMITED,
    SELECTED_TWICE,
    SIZE_COMPARED_FIRST,
    TIMER_WHEEL,
    Version,
)

_DEFAULT_RECOVERED_FILES = 10  # MessageStoreConfig.commitLogRecoverMaxNum
_LIKELY_HEAP_LIMIT = 256 << 20  # an array above this is taken not to fit into the heap, bytes

_NOT_MODELLED = (
    *("duplicationEnable", "enableControllerMode", "enableAcceleratedRecovery", "forceVerifyPropCRC"),
    *("checkCommitLogOffsetOnRecover", "recheckReputOffsetFromCq", "enableConsumeQueueExt", "indexRocksDBEnable"),
)
"""Settings that change what a start does, and that the prediction does not follow."""

_CHOSEN_QUEUES = {
    "combineCQPreferCQType": "default",
    "combineAssignOffsetCQType": "default",
    "combineCQLoadingCQTypes": "default;defaultrocksdb",
}
"""Which kinds of queues there are, which is read, and which gives offsets: by default both, and those in files."""

_CONFIGS = {
    "topics.json": OLDEST,
    "consumerOffset.json": OLDEST,
    "subscriptionGroup.json": OLDEST,
    "consumerFilter.json": OLDEST,
    "delayOffset.json": OLDEST,
    "topicQueueMapping.json": Version(5, 0, 0),  # TopicQueueMappingManager
    "consumerOrderInfo.json": Version(5, 0, 0),  # ConsumerOrderInfoManager
    "lmqConsumerOffset.json": Version(4, 9, 3),  # LmqConsumerOffsetManager
    "timermetrics": TIMER_WHEEL,  # TimerMetrics
}
_SWITCHES = {"lmqConsumerOffset.json": "enableLmq", "timermetrics": "timerWheelEnable"}


@dataclass(frozen=True)
class RecoveryRules:
    """The rules of one version; settings are the broker's own, with its defaults."""

    version: Version
    check_crc: bool = True
    index_safe: bool = False
    recovered_files: int = _DEFAULT_RECOVERED_FILES
    log_file_size: int | None = None
    queue_file_size: int | None = None
    batch_queue_file_size: int | None = None
    heap_limit: int = _LIKELY_HEAP_LIMIT

    @classmethod
    def of(cls, version: Version, conf: BrokerConf) -> RecoveryRules:
        """The rules of a broker of `version` with the settings that are known."""
        safe = conf.is_on("messageIndexSafe") and conf.is_on("messageIndexEnable", default=True)
        return cls(
            version,
            check_crc=conf.is_on("checkCRCOnRecover", default=True),
            index_safe=safe,
            recovered_files=conf.size("commitLogRecoverMaxNum") or _DEFAULT_RECOVERED_FILES,
            log_file_size=log_file_size(conf),
            queue_file_size=queue_file_size(conf, "simple"),
            batch_queue_file_size=queue_file_size(conf, "batch"),
        )

    @property
    def ignores_wrong_sizes(self) -> bool:
        """`MappedFileQueue#load` leaves out a file of another size and all after it, instead of refusing."""
        return leaves_out_wrong_sizes(self.version)

    @property
    def skips_directories(self) -> bool:
        """`MappedFileQueue#doLoad` skips directories."""
        return self.version >= Version(5, 1, 0)

    @property
    def deletes_empty_last_file(self) -> bool:
        """`MappedFileQueue#doLoad` deletes an empty file when it is the last."""
        return deletes_empty_last_file(self.version)

    @property
    def knows_ipv6(self) -> bool:
        """Records may hold hosts of 20 bytes."""
        return self.version >= IPV6_HOSTS

    @property
    def knows_second_format(self) -> bool:
        """Records may have the magic code V2."""
        return self.version >= MAGIC_CODE_V2_SINCE

    @property
    def parses_batches(self) -> bool:
        """`CommitLog#setBatchSizeIfNeeded`: INNER_BASE and INNER_NUM must be numbers."""
        return self.version >= Version(5, 0, 0)

    @property
    def compares_size_first(self) -> bool:
        """`CommitLog#checkMessageAndReturnSize` first compares the size with the rest of the file."""
        return self.version >= SIZE_COMPARED_FIRST

    @property
    def knows_negative_sizes(self) -> bool:
        """The same finds no record, and no blank either, where the size is negative."""
        return self.version >= NEGATIVE_SIZES_KNOWN

    @property
    def queues_remember_ends(self) -> bool:
        """A queue's `maxPhysicOffset` is the end of its last record, not its start."""
        return self.version >= Version(4, 5, 1)

    @property
    def dispatches_when_clean(self) -> bool:
        """`CommitLog#recoverNormally` scans from where the queues end, and derives what they lack."""
        return self.version >= Version(5, 3, 2)

    @property
    def tries_first_records(self) -> bool:
        """`CommitLog#isMappedFileMatchedRecover` parses the first record of a file, also at a clean start."""
        return self.version >= Version(5, 3, 4)

    @property
    def limits_recovered_files(self) -> bool:
        """No more than `recovered_files` are scanned."""
        return self.version >= RECOVERED_FILES_LIMITED

    @property
    def combines_queues(self) -> bool:
        """Queues in files and in RocksDB are one store (`CombineConsumeQueueStore`), not two."""
        return self.version >= COMBINED_QUEUES

    @property
    def skips_new_database(self) -> bool:
        """`CombineConsumeQueueStore#isMappedFileMatchedRecover` does not search for rows where there are none yet."""
        return self.version >= LITE_TOPICS

    @property
    def writes_some_twice(self) -> bool:
        """A setting has only topics of LITE messages written twice (`CombineConsumeQueueStore`)."""
        return self.version >= SELECTED_TWICE

    @property
    def starts_by_logics_offset(self) -> bool:
        """The checkpoint's offset, not its times, chooses the file after a crash."""
        return self.version >= Version(5, 5, 0)

    @property
    def recounts_before_cut(self) -> bool:
        """`ConsumeQueueStore#truncateDirty` reads the queues as they are after the scan."""
        return self.version >= Version(5, 3, 4)

    @property
    def dispatches_from_queues(self) -> bool:
        """`DefaultMessageStore#start` dispatches what no queue has yet, and waits for it."""
        return Version(4, 5, 1) <= self.version < Version(5, 0, 0)

    @property
    def destroys_queues_without_log(self) -> bool:
        """Also a clean start deletes all consume queues when there is no commit log file."""
        return self.version >= Version(4, 5, 1)

    @property
    def reads_last_unit_first(self) -> bool:
        """`ConsumeQueue#correctMinOffset` reads the last unit first, and fails where the last file holds none."""
        return Version(5, 0, 0) <= self.version < Version(5, 5, 0)

    @property
    def refuses_index_directories(self) -> bool:
        """A directory in `index` whose name is a number stops the start."""
        return self.version >= Version(5, 0, 0)

    @property
    def has_timer_wheel(self) -> bool:
        """`TimerWheel` refuses a file of another size."""
        return self.version >= TIMER_WHEEL


def loaded_configs(version: Version, conf: BrokerConf) -> list[str]:
    """The files of `config/` that a start loads (`BrokerController#initialize`); not those of a feature that is off."""
    switched_off = {name for name, switch in _SWITCHES.items() if (conf.text(switch) or "").lower() == "false"}
    return [name for name, since in _CONFIGS.items() if version >= since and name not in switched_off]


def not_modelled(conf: BrokerConf) -> list[str]:
    """The settings of a broker that the prediction does not follow."""
    names = [name for name in _NOT_MODELLED if conf.is_on(name)]
    return names + [name for name, value in chosen_queues(conf).items() if value != _CHOSEN_QUEUES[name]]


def chosen_queues(conf: BrokerConf) -> dict[str, str]:
    """Which queues a broker with queues in files and in RocksDB loads, reads and asks for offsets, in small letters."""
    return {name: (conf.text(name) or usual).lower() for name, usual in _CHOSEN_QUEUES.items()}
