"""Broker versions: in which release a rule changed, and the signs in a store of the oldest version that wrote it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from rmqtool.base.errors import UsageError

_TEXT = re.compile(r"v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?", re.ASCII)
_ANY_PATCH = 999


class Version(NamedTuple):
    """A release of RocketMQ."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        fields = self[:2] if self.patch == _ANY_PATCH else self
        return ".".join(str(field) for field in fields)


OLDEST = Version(4, 4, 0)
NEWEST = Version(5, 5, 1)
LAST_PATCHES: Mapping[tuple[int, int], int] = MappingProxyType({
    (4, 4): 0, (4, 5): 2, (4, 6): 1, (4, 7): 1, (4, 8): 0, (4, 9): 8,
    (5, 0): 0, (5, 1): 4, (5, 2): 0, (5, 3): 4, (5, 4): 0, (5, 5): 1,
})  # fmt: skip
"""The last patch of each minor release; there is one of each number up to it."""

# Rules that changed, by the first release that has the new one.
EXPIRED_QUEUE_MIN_IS_MAX = Version(5, 0, 0)  # ConsumeQueue#correctMinOffset, which before walked unit by unit
BEYOND_MAX_TO_MAX = Version(4, 9, 4)  # DefaultMessageStore#getMessage: a pull beyond the maximum began again at 0
PULL_BY_UNITS = Version(5, 0, 0)  # the same, with an iterator over units, batches and several files
FILTERED_IN_BYTES = Version(5, 1, 0)  # the same: units that one pull reads are limited in bytes, in 5.0 in number
ROWS_ONE_BY_ONE = Version(5, 5, 0)  # RocksDBConsumeQueue#iterateFrom: before it read no more rows than were asked for
FILTERED_BYTES_INCLUSIVE = Version(5, 3, 3)  # the same: the unit at the limit itself is no longer read
TIME_BY_RECORDS = Version(5, 1, 1)  # ConsumeQueue#getOffsetInQueueByTime: no longer by modification times of files
TIME_WITHIN_RANGE = Version(5, 0, 0)  # DefaultMessageStore#getOffsetInQueueByTime: clamped to the queue's range
INDEX_COUNTS_SLOTS = Version(4, 7, 1)  # IndexFile#putKey, which before counted every put
VALUES_MAY_HOLD_SEPARATOR = Version(4, 9, 1)  # MessageDecoder#string2messageProperties, which before dropped them
LIGHT_OFFSETS = Version(4, 9, 3)  # LmqConsumerOffsetManager
LIGHT_OFFSETS_READ = Version(4, 9, 4)  # LmqConsumerOffsetManager(): without it fastjson made one without any offset
_LIGHT_QUEUES_COUNTED = Version(4, 9, 5), Version(5, 1, 0)  # setLmqTopicQueueTable, when the queues are recovered
MULTI_DISPATCH = Version(4, 9, 3)  # ConsumeQueue#multiDispatchLmqQueue
MULTI_DISPATCH_TAKES_NO_PROPERTIES = Version(4, 9, 4)  # checkMultiDispatchQueue: before, NullPointerException
MULTI_DISPATCH_SPARES_RETRIES = Version(5, 1, 1)  # ConsumeQueue#isNeedHandleMultiDispatch, later MultiDispatchUtils
MULTI_DISPATCH_SPARES_SYSTEM_TOPICS = Version(5, 1, 3)  # the same, and names with a separator of paths
BATCH_QUEUES = Version(5, 0, 0)  # BatchConsumeQueue
COMPACTION = Version(5, 1, 0)  # CompactionStore
TIER_HASHES_MASKED = Version(5, 5, 1)  # IndexStoreFile#hashCode: before it, the absolute value
TIER_REWRITTEN = Version(5, 3, 0)  # FlatFileStore, MessageStoreFetcherImpl; before TieredFlatFile, TieredMessageFetcher
MESSAGE_TYPES = Version(5, 0, 0)  # TopicAttributes#TOPIC_MESSAGE_TYPE_ATTRIBUTE
CHECKPOINT_HAS_LOGICS_OFFSET = Version(5, 5, 0)  # StoreCheckpoint#getLogicsPhysicalOffset
MAGIC_CODE_V2_SINCE = Version(5, 1, 0)  # MessageVersion
MAGIC_CODE_DECODED = Version(5, 1, 0)  # MessageDecoder#decode: before, pulls and queries gave records with any
INDEX_OF_TAGS = Version(5, 4, 0)  # IndexService#buildIndex
MULTI_DISPATCH_SPARES_DEAD_LETTERS = Version(5, 5, 0)
MULTI_DISPATCH_SPARES = (
    MULTI_DISPATCH_SPARES_RETRIES,
    MULTI_DISPATCH_SPARES_SYSTEM_TOPICS,
    MULTI_DISPATCH_SPARES_DEAD_LETTERS,
)
DISK_RATIO_AS_DF = Version(4, 9, 2)  # UtilAll#getDiskPartitionSpaceUsedPercent: whole percent, what root keeps counted
SIZE_COMPARED_FIRST = Version(5, 3, 2)  # CommitLog#checkMessageAndReturnSize: with the rest of the file; blanks too
NEGATIVE_SIZES_KNOWN = Version(5, 5, 1)  # the same: a blank of negative size ends the log, and is none
IPV6_HOSTS = Version(4, 6, 0)  # MessageSysFlag#BORNHOST_V6_FLAG
TIMER_WHEEL = Version(5, 0, 0)  # TimerMessageStore
TIMER_PASSES_OVER = Version(5, 4, 0)  # StoreUtil#getMessage: what its buffer cannot hold; before, it stands still there
TIMER_BUFFER_HOLDS_PROPERTIES = Version(5, 5, 1)  # TimerMessageStore: 64 KiB beside maxMessageSize; before, 100 bytes
TIMER_SKIPS_UNKNOWN = Version(5, 2, 0)  # MessageStoreConfig#setTimerSkipUnknownError
TIMER_OFFSET_IN_RANGE = Version(5, 3, 2)  # TimerMessageStore#recover: from now on no further than its queue goes
TIMER_DELETE_KEY_HAS_TOPIC = Version(5, 3, 2)  # TimerMessageStore#buildDeleteKey; before, the unique key alone
TIMER_DELETE_KEY_CONFIGURED = Version(5, 4, 0)  # MessageStoreConfig#appendTopicForTimerDeleteKey
_DELAYS_AFTER_RECOVERY = Version(4, 9, 2), Version(5, 0, 0)  # DefaultMessageStore#load: the levels are parsed last
DELAY_OFFSETS_WRITTEN_AT_STOP = Version(4, 9, 3)  # ScheduleMessageService#shutdown; before, every ten seconds only
_DELAY_OFFSET_OF_RUN = Version(4, 9, 3)  # ScheduleMessageService.DeliverDelayedMessageTimerTask#executeOnTimeup: alone
_DELIVERY_STOPS = Version(4, 9, 3), Version(5, 0, 0)  # the same: at a message that it cannot deliver, which others drop
DELAY_OFFSET_IN_RANGE = Version(4, 9, 2)  # ScheduleMessageService#correctDelayOffset: no further than its queue goes
SEVERAL_LOG_PATHS = Version(4, 9, 2)  # MultiPathMappedFileQueue
STORE_CREATES_DIRECTORIES = Version(4, 9, 2)  # DefaultMessageStore: a missing consumequeue/ does not stay missing
DISK_LEVELS_CONFIGURED = Version(5, 0, 0)  # MessageStoreConfig; before, only properties of the JVM
DISK_LEVEL_DECIDES_AT_ONCE = Version(5, 0, 0)  # CleanCommitLogService#isSpaceToDelete returns above 85 and 90 percent
BATCH_MAX_CONFIGURED = Version(5, 0, 0)  # MessageStoreConfig#deleteFileBatchMax; before, DELETE_FILES_BATCH_MAX
OFFSETS_HAVE_DATA_VERSION = Version(5, 0, 0)  # ConsumerOffsetManager
SLAVE_TAKES_NO_ATTRIBUTES = Version(5, 3, 2)  # SlaveSynchronize#syncTopicConfig
SLAVE_TAKES_ATTRIBUTES = Version(5, 3, 4)
PULL_OFFSETS_KEPT = Version(5, 5, 0)  # ConsumerOffsetManager#getPullOffsetTable became public
PULL_OFFSETS_KEPT_NO_MORE = Version(5, 5, 1)  # the field became transient: it is read, and not written
LIGHT_QUEUES_EXPIRE = Version(5, 5, 0)  # LiteLifecycleManager; cleanUnusedTopic spares light queues before, too
CONTROLLER_EXCLUDES_DLEDGER = Version(5, 1, 1)  # BrokerStartup
ROCKSDB_QUEUES = Version(5, 2, 0)  # RocksDBMessageStore
ROWS_BY_BOUNDARY = Version(5, 3, 0)  # RocksDBConsumeQueueTable#binarySearchInCQByTime, before it the nearest one
ROWS_LOOK_AT_ENDS = Version(5, 3, 2)  # the same, for moments before and after a queue
COMBINED_QUEUES = Version(5, 3, 4)  # CombineConsumeQueueStore: queues in files and in RocksDB, in one store
SELECTED_TWICE = Version(5, 5, 1)  # MessageStoreConfig#rocksdbCQSelectiveDoubleWriteEnable
ROWS_KEPT_PAST_LOG = Version(5, 3, 2)  # RocksDBConsumeQueueOffsetTable#truncateDirty, which before failed the start
ROCKSDB_LIGHT_QUEUES = Version(5, 3, 2)  # RocksDBConsumeQueueStore, which before wrote no rows of them
ROCKSDB_CONFIG_VERSIONS = Version(5, 3, 1)  # ConfigRocksDBStorage: column families of versions and what is forbidden
SINGLE_ROCKSDB_CONFIG = Version(5, 3, 4)  # MessageStoreConfig#useSingleRocksDBForAllConfigs
POPS_IN_ROCKSDB = Version(5, 3, 2)  # PopConsumerService: BrokerConfig#popConsumerKVServiceInit
SECOND_CONFIG = Version(5, 3, 2)  # BrokerConfig#configManagerVersion
RECOVERED_FILES_LIMITED = Version(5, 4, 0)  # MessageStoreConfig#commitLogRecoverMaxNum
LITE_TOPICS = Version(5, 5, 0)  # LiteLifecycleManager, which needs light queues in files or all of them in RocksDB
FASTJSON_2 = Version(5, 4, 0)  # RemotingSerializable: each offset on a line of its own; text and null as lists
QUEUE_WITHOUT_FILE_IS_RESET = Version(5, 5, 1)  # ConsumeQueue#correctMinOffset
TEXT_SETTINGS_TRIMMED = Version(5, 2, 0)  # MixAll#properties2Object


class Sign(NamedTuple):
    """Something in a store that brokers write only since a release."""

    name: str
    since: Version


SIGNS = {
    sign.name: sign
    for sign in (
        Sign("ipv6-host", IPV6_HOSTS),
        Sign("index-slots-counted-once", INDEX_COUNTS_SLOTS),
        Sign("lmq-consumer-offset", Version(4, 9, 3)),
        Sign("lmq-queue", MULTI_DISPATCH),
        Sign("inner-batch", Version(4, 9, 4)),
        Sign("compression-type", Version(4, 9, 4)),
        Sign("abort.bak", Version(5, 0, 0)),
        Sign("abort-process-id", Version(5, 0, 0)),
        Sign("timer", TIMER_WHEEL),
        Sign("batch-queue", BATCH_QUEUES),
        Sign("config-5.0", Version(5, 0, 0)),
        Sign("state-version", Version(5, 0, 0)),
        Sign("checkpoint-master-flushed-offset", Version(5, 0, 0)),
        Sign("compaction", COMPACTION),
        Sign("magic-code-v2", MAGIC_CODE_V2_SINCE),
        Sign("checkpoint-confirm-offset", Version(5, 1, 1)),
        Sign("crc32-property", Version(5, 2, 0)),
        Sign("transaction-metrics", Version(5, 2, 0)),
        Sign("rocksdb-queues", Version(5, 2, 0)),
        Sign("rocksdbstore", Version(5, 4, 0)),
        Sign("index-of-tags", INDEX_OF_TAGS),
        Sign("checkpoint-logics-offset", CHECKPOINT_HAS_LOGICS_OFFSET),
        Sign("pull-offset-table", PULL_OFFSETS_KEPT),
        Sign("separate-rocksdb-queues", Version(5, 5, 0)),
    )
}
"""Every sign, by name; each gives a lower bound of the version, none an upper one."""


def sorted_signs(names: Iterable[str]) -> list[Sign]:
    """The signs of these names, that of the newest version last."""
    return sorted((SIGNS[name] for name in set(names)), key=lambda sign: (sign.since, sign.name))


def parse_version(text: str) -> Version:
    """Parse ``5.3`` (any patch of it, the last where they differ) or ``5.3.3``; raise UsageError."""
    match = _TEXT.fullmatch(text.strip())
    if not match:
        raise UsageError(f"a broker version looks like 5.3 or 5.3.3, not {text!r}")
    version = Version(int(match[1]), int(match[2]), int(match[3]) if match[3] else _ANY_PATCH)
    if not OLDEST[:2] <= version[:2] <= NEWEST[:2]:
        raise UsageError(f"broker version {version} is not known: {OLDEST} to {NEWEST} are")
    last = LAST_PATCHES.get(version[:2], -1)
    if (last < version.patch != _ANY_PATCH and version < NEWEST) or last < 0:
        nearest = max(each for each in RELEASES if each < version), min(each for each in RELEASES if each > version)
        raise UsageError(f"there is no release {version}: the nearest are {nearest[0]} and {nearest[1]}")
    return version


def newer_than_known(version: Version) -> str | None:
    """What is to be said of a release that came after this program; None for those that are known."""
    is_newer = version > NEWEST and version.patch != _ANY_PATCH
    return f"{version} is newer than {NEWEST}, whose rules are used for it" if is_newer else None


def delays_unknown_to_recovery(version: Version) -> bool:
    """Whether a recovery derives units of delayed messages without their delay, with the hash of their tag."""
    since, until = _DELAYS_AFTER_RECOVERY
    return since <= version < until


def delivery_stops(version: Version) -> bool:
    """Whether a delay level stands still at a message without a destination; else that message alone is dropped."""
    since, until = _DELIVERY_STOPS
    return since <= version < until


def forgets_light_offsets(version: Version) -> bool:
    """Whether the queue offsets of light queues begin again at a start."""
    of_4, of_5 = _LIGHT_QUEUES_COUNTED
    return MULTI_DISPATCH <= version < of_4 or Version(5, 0, 0) <= version < of_5


def notes_first_of_run(version: Version) -> bool:
    """Whether a delay level's offset goes on by one in each run of its task, whatever that delivers."""
    return version == _DELAY_OFFSET_OF_RUN


RELEASES = tuple(
    Version(*minor, patch) for minor, last_patch in LAST_PATCHES.items() for patch in range(last_patch + 1)
)
"""Every release, oldest first."""


def release_before(version: Version) -> Version:
    """The last release before the one that changed something."""
    return RELEASES[RELEASES.index(version) - 1]


def release_of(version: Version) -> Version:
    """The release that a version names; of ``5.3``, any patch, the last one."""
    return next(release for release in reversed(RELEASES) if release <= version)


def ranges_of(versions: Iterable[Version]) -> list[str]:
    """Releases in order, those that follow each other as a range: ``4.9.2``, ``5.0.0 to 5.1.2``."""
    indices = {version: index for index, version in enumerate(RELEASES)}
    runs = groupby(enumerate(sorted(versions)), key=lambda item: indices.get(item[1], 0) - item[0])
    ends = ([version for _, version in run] for _, run in runs)
    return [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in ends]


@dataclass(frozen=True)
class Releases:
    """Releases that may have written a store, oldest first, and the evidence that ruled out the others.

    With `--broker-version` there is only that one, and `is_named` is true.
    """

    fitting: tuple[Version, ...] = RELEASES
    evidence: tuple[str, ...] = ()
    is_named: bool = False

    @classmethod
    def named(cls, version: Version) -> Releases:
        """The one release that `--broker-version` names."""
        return cls((version,), is_named=True)

    @property
    def oldest(self) -> Version:
        """The oldest release that fits."""
        return self.fitting[0]

    @property
    def newest(self) -> Version:
        """The newest release that fits."""
        return self.fitting[-1]

    def differ_by(self, *changes: Version) -> bool:
        """Whether a rule changed, with one of these releases, between two of those that fit."""
        return any(self.oldest < change <= self.newest for change in changes)

    def narrow(
        self,
        evidence: str,
        *,
        since: Version | None = None,
        before: Version | None = None,
        other_than: Version | None = None,
    ) -> Releases:
        """Only the releases from `since` on, older than `before` and `other_than` one.

        Evidence that no release fits changes nothing.
        """
        if self.is_named:
            return self
        kept = tuple(
            release
            for release in self.fitting
            if (since is None or release >= since) and (before is None or release < before) and release != other_than
        )
        if not kept or kept == self.fitting:
            return self
        return replace(self, fitting=kept, evidence=(*self.evidence, evidence))

    def where(self, rule: Callable[[Version], bool]) -> tuple[Version, ...]:
        """The fitting releases that have a rule."""
        return tuple(filter(rule, self.fitting))

    def __str__(self) -> str:
        """``5.3.3``, ``4.9.3 to 5.3.4``, or ``5.4.0 or 5.5.1``."""
        if len(self.fitting) == 1:
            return str(self.oldest)
        are_apart = len(self.fitting) == 2 and release_before(self.newest) != self.oldest
        return f"{self.oldest} {'or' if are_apart else 'to'} {self.newest}"


ANY_RELEASE = Releases()
"""Every release: nothing in the store narrows them yet."""
