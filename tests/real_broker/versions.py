"""The releases under test, and in which of them the harness finds what the first does not have."""

VERSIONS: tuple[str, ...] = ("4.4.0", "4.7.1", "4.9.7", "5.1.4", "5.3.3", "5.5.0")

# The first release under test that has a feature; what it can store goes into the full scenarios.
_SINCE = {
    "ipv6": "4.7.1",
    "compression-types": "4.9.7",
    "lmq": "4.9.7",
    "batch-queue": "5.1.4",
    "v2": "5.1.4",
    "v2-batch": "5.3.3",  # 5.1.x declares each message of such a batch one byte too long
    "queue-store": "5.5.0",  # the cleaner of queues and index is in ConsumeQueueStore
    "crc32-property": "5.3.3",
}


def features(version: str) -> frozenset[str]:
    """Names of the features of `version`."""
    return frozenset(name for name, since in _SINCE.items() if _numbers(version) >= _numbers(since))


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def family(version: str) -> str:
    """Name of the Java sources that fit `version`: ``v4`` or ``v5``."""
    return f"v{version.partition('.')[0]}"
