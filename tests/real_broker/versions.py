"""The releases under test, and in which of them the harness finds what the first does not have."""

from collections.abc import Mapping

from rmqtool.rules.versions import parse_version

VERSIONS: tuple[str, ...] = ("4.4.0", "4.7.1", "4.9.7", "5.1.4", "5.3.3", "5.5.0", "5.5.1")

_COMBINED = parse_version("5.4.0")  # CombineConsumeQueueStore
# The first release under test, or that the harness can run, that has a feature; it goes into the full scenarios.
_SINCE = {
    "ipv6": "4.7.1",
    "compression-types": "4.9.7",
    "lmq": "4.9.3",
    "batch-queue": "5.1.4",
    "v2": "5.1.4",
    "v2-batch": "5.3.3",  # 5.1.x declares each message of such a batch one byte too long
    "queue-store": "5.4.0",  # the cleaner of queues and index is in ConsumeQueueStore
    "crc32-property": "5.3.3",
}


def features(version: str, settings: Mapping[str, str] | None = None) -> frozenset[str]:
    """Names of the features of `version` with `settings` of broker.conf."""
    found = {name for name, since in _SINCE.items() if parse_version(version) >= parse_version(since)}
    if parse_version(version) >= _COMBINED and (settings or {}).get("rocksdbCQDoubleWriteEnable") == "true":
        found.discard("batch-queue")  # sends to its topics fail then
    return frozenset(found)


def family(version: str) -> str:
    """Name of the Java sources that fit `version`: ``v4`` or ``v5``."""
    return f"v{version.partition('.')[0]}"
