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
class _Since:
    """Whether a release is one of those that follow a rule: from one on, or to `before` another."""

    since: Version
    before: Version | None = None

    def __get__(self, rules: RecoveryRules, _: type[RecoveryRules]) -> bool:
        return rules.version >= self.since and (self.before is None or rules.version < self.before)


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
    def deletes_empty_last_file(self) -> bool:
        """`MappedFileQueue#doLoad` deletes an empty file when it is the last."""
        return deletes_empty_last_file(self.version)

    skips_directories = _Since(Version(5, 1, 0))  # MappedFileQueue#doLoad
    knows_ipv6 = _Since(IPV6_HOSTS)  # records may hold hosts of 20 bytes
    knows_second_format = _Since(MAGIC_CODE_V2_SINCE)  # records may have the magic code V2
    parses_batches = _Since(Version(5, 0, 0))  # CommitLog#setBatchSizeIfNeeded: INNER_BASE and INNER_NUM are numbers
    compares_size_first = _Since(SIZE_COMPARED_FIRST)  # CommitLog#checkMessageAndReturnSize: with the rest of the file
    knows_negative_sizes = _Since(NEGATIVE_SIZES_KNOWN)  # the same: there is no record, and no blank either
    queues_remember_ends = _Since(Version(4, 5, 1))  # ConsumeQueue.maxPhysicOffset: a record's end, not its start
    dispatches_when_clean = _Since(Version(5, 3, 2))  # CommitLog#recoverNormally scans from where the queues end
    tries_first_records = _Since(Version(5, 3, 4))  # CommitLog#isMappedFileMatchedRecover, also at a clean start
    limits_recovered_files = _Since(RECOVERED_FILES_LIMITED)  # no more than `recovered_files` are scanned
    combines_queues = _Since(COMBINED_QUEUES)  # CombineConsumeQueueStore: files and RocksDB are one store, not two
    skips_new_database = _Since(LITE_TOPICS)  # its #isMappedFileMatchedRecover: rows are searched for where some are
    writes_some_twice = _Since(SELECTED_TWICE)  # the same: a setting has only topics of LITE messages written twice
    starts_by_logics_offset = _Since(Version(5, 5, 0))  # after a crash: the checkpoint's offset, not its times
    recounts_before_cut = _Since(Version(5, 3, 4))  # ConsumeQueueStore#truncateDirty: queues as they are after the scan
    # DefaultMessageStore#start dispatches what no queue has yet, and waits for it.
    dispatches_from_queues = _Since(Version(4, 5, 1), before=Version(5, 0, 0))
    destroys_queues_without_log = _Since(Version(4, 5, 1))  # without a log file; also a clean start
    # ConsumeQueue#correctMinOffset reads the last unit first, and fails where the last file holds none.
    reads_last_unit_first = _Since(Version(5, 0, 0), before=Version(5, 5, 0))
    refuses_index_directories = _Since(Version(5, 0, 0))  # one whose name is a number stops the start
    has_timer_wheel = _Since(TIMER_WHEEL)  # TimerWheel refuses a file of another size

    @property
    def answers(self) -> tuple[object, ...]:
        """What releases that recover alike have in common: whether they follow each of the rules."""
        rules = (name for name, rule in vars(RecoveryRules).items() if isinstance(rule, _Since))
        return (self.ignores_wrong_sizes, self.deletes_empty_last_file, *(getattr(self, name) for name in rules))


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
