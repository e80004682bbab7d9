"""The table of broker.conf's settings: its form, and what RocketMQ's own release notes and sources say of some."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from rmqtool.rules.broker_conf import BY_MACHINE, TABLE, UNUSED, broker_settings, is_known, nearest
from rmqtool.rules.versions import RELEASES, Version, parse_version

V4, V5 = Version(4, 4, 0), Version(5, 5, 0)


def test_every_line_is_a_history() -> None:
    """Names once and in order; releases that exist, ascending, each with something new."""
    names = [line.partition("\t")[0] for line in TABLE.read_text("utf-8").splitlines()]
    assert names == sorted(set(names))
    assert set(names) == set(broker_settings())
    for setting in broker_settings().values():
        assert all(release in RELEASES for release, _ in setting.changes)
        assert all(before[0] < after[0] for before, after in pairwise(setting.changes)), setting
        assert all(before[1] != after[1] for before, after in pairwise(setting.changes)), setting
        assert setting.changes[0][1] is not None


def test_nothing_of_the_machine_is_in_it() -> None:
    """Neither directories nor addresses of where it was made."""
    values = [value or "" for setting in broker_settings().values() for _, value in setting.changes]
    addresses = {value for value in values if re.search(r"\d+\.\d+\.\d+\.\d+", value)}
    assert addresses == {"0.0.0.0"}
    assert not [value for value in values if value.startswith("/")]
    assert broker_settings()["brokerName"].default(V5) == BY_MACHINE
    assert broker_settings()["storePathRootDir"].default(V5) == BY_MACHINE


@pytest.mark.parametrize(
    ("name", "known", "unknown"),
    [
        ("mapedFileSizeCommitLog", "4.5.1", "4.5.2"),
        ("rocksdbCQDoubleWriteEnable", "5.3.1", "5.3.0"),
        ("combineCQUseRocksdbForLmq", "5.5.0", "5.4.0"),
        ("transferMetadataJsonToRocksdb", "5.3.1", "5.3.2"),
        ("storeType", "5.1.4", "5.1.3"),
        ("commitLogRecoverMaxNum", "5.4.0", "5.3.3"),
        ("authenticationEnabled", "5.3.0", "5.2.0"),
        ("rmqAddressServerDomain", "4.4.0", "4.3.0"),
    ],
)
def test_releases_know(name: str, known: str, unknown: str) -> None:
    assert is_known(name, parse_version(known))
    if unknown != "4.3.0":
        assert not is_known(name, parse_version(unknown))


def test_defaults() -> None:
    """As they are after `BrokerStartup`."""
    defaults = {name: setting.default(V5) for name, setting in broker_settings().items()}
    assert (defaults["listenPort"], defaults["deleteWhen"], defaults["fileReservedTime"]) == ("10911", "04", "72")
    assert (defaults["mappedFileSizeCommitLog"], defaults["commitLogRecoverMaxNum"]) == ("1073741824", "10")
    assert broker_settings()["transactionCheckInterval"].default(V4) == "60000"
    assert broker_settings()["transactionCheckInterval"].changed(V5) == Version(5, 1, 1)
    assert broker_settings()["aclEnable"].default(V5) == UNUSED
    assert broker_settings()["combineCQUseRocksdbForLmq"].default(V4) is None


def test_any_patch_is_the_last() -> None:
    """`--broker-version 5.3` is the last release of it."""
    assert is_known("enableAcceleratedRecovery", parse_version("5.3"))
    assert not is_known("enableAcceleratedRecovery", parse_version("5.3.3"))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("flushDiskTyp", "flushDiskType"),
        ("brokerip1", "brokerIP1"),
        ("mapedFileSizeCommitLog", "mappedFileSizeCommitLog"),
        ("flushDiksType", "flushDiskType"),
        ("tieredStoreFilepath", "tieredStoreFilePath"),
        ("brokerIP3", None),
        ("mappedFileSizeLog", None),
        ("mapperFileSizeConsumeQueueBatch", None),
        ("somethingElse", None),
    ],
)
def test_the_nearest_name(name: str, meant: str | None) -> None:
    """One slip is a misspelling; a name that sounds alike, or two that are as near, are none."""
    assert nearest(name, V5) == meant
