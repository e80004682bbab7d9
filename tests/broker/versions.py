"""The releases under test, and what each can store beyond the first of them."""

VERSIONS: tuple[str, ...] = ("4.4.0", "4.7.1", "4.9.7", "5.1.4", "5.3.3", "5.5.0")

# The release under test from which on a feature is written into the full scenarios.
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
    """Names of the features that `version` writes."""
    return frozenset(name for name, since in _SINCE.items() if VERSIONS.index(version) >= VERSIONS.index(since))


def family(version: str) -> str:
    """Name of the Java sources that fit `version`: ``v4`` or ``v5``."""
    return f"v{version.partition('.')[0]}"
