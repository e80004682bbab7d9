"""What stops a broker of 5.5 is predicted before an upgrade, and with the setting fixed it starts."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqtool.broker.rocksdb_recovery import SETTING
from rmqtool.broker.upgrade import refusals, switches
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version, parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.golden import stores
from tests.real_broker.harness import GEOMETRY, Harness

pytestmark = [pytest.mark.broker, pytest.mark.slow]
_TWICE = {"rocksdbCQDoubleWriteEnable": "true"}
_FOR_LMQ = {"combineCQUseRocksdbForLmq": "true"}
_LOG_SIZE, _QUEUE_SIZE = GEOMETRY["mappedFileSizeCommitLog"], GEOMETRY["mappedFileSizeConsumeQueue"]


class Upgrade(NamedTuple):
    """Settings of broker.conf that stop the start, and those that do not; `as_read` stands for a name not read."""

    store: str
    stops: Mapping[str, str]
    starts: Mapping[str, str]
    prepare: Callable[[Path], object] = lambda store: None
    as_read: Mapping[str, str] = {}
    version: str = "5.5.0"


def upgrades() -> Iterator[Upgrade]:
    yield Upgrade("4.9.7-shop", _TWICE, {**_TWICE, **_FOR_LMQ})
    yield Upgrade("5.3.3-shop", {**_TWICE, **_FOR_LMQ}, _FOR_LMQ)
    yield Upgrade(
        "4.9.7-shop",
        {**_TWICE, **_FOR_LMQ},
        {},
        lambda store: database(store / "consumequeue_rocksdb"),
    )
    yield Upgrade("4.9.7-shop", {"enableAcceleratedRecovery": "true"}, {}, lambda store: (store / "abort").touch())
    yield Upgrade(
        "4.9.7-shop",
        {"mapedFileSizeCommitLog": _LOG_SIZE},
        {"mappedFileSizeCommitLog": _LOG_SIZE},
        as_read={"mappedFileSizeCommitLog": str(1 << 30)},
    )
    yield Upgrade(
        "4.9.7-shop",
        {"mapedFileSizeConsumeQueue": _QUEUE_SIZE},
        {"mappedFileSizeConsumeQueue": _QUEUE_SIZE},
        as_read={"mappedFileSizeConsumeQueue": "6000000"},
    )

    in_rocksdb = "defaultRocksDB"
    yield from (
        Upgrade("4.9.7-shop", {**_TWICE, **_FOR_LMQ, **wrong}, {**_TWICE, **_FOR_LMQ})
        for wrong in (
            {"combineAssignOffsetCQType": in_rocksdb},
            {"combineCQLoadingCQTypes": "default"},
            {"combineCQLoadingCQTypes": in_rocksdb},
            {"combineCQPreferCQType": "both"},
        )
    )
    yield Upgrade(
        "4.9.7-shop",
        {**_TWICE, **_FOR_LMQ, SETTING: "true", "combineCQPreferCQType": in_rocksdb},
        {**_TWICE, **_FOR_LMQ, "combineCQPreferCQType": in_rocksdb},
        version="5.5.1",
    )


def test_the_second_configuration_takes_over_nothing(harness: Callable[[str], Harness], tmp_path: Path) -> None:
    """With configManagerVersion=v2 committed offsets and the topics that a broker does not make itself are gone."""
    found = []
    for settings in ({}, {"configManagerVersion": "v2"}):
        store = stores.unpack("4.9.7-shop", tmp_path / str(len(settings)))
        predicted = list(switches(Snapshot(open_store(store, BrokerConf(settings))), Version(5, 5, 0)))
        [real] = harness("5.5.0").survey([(store, [])], settings)
        assert real["refuses"] is None
        found.append((len(predicted), "orders" in real["topics"], bool(real["committed"])))
    assert found == [(0, True, True), (1, False, False)]


@pytest.mark.rare
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_light_queues_switched_off_and_on(harness: Callable[[str], Harness], version: str, tmp_path: Path) -> None:
    """Committed offsets are in one file or the other, those of all groups; and a blank behind true is false."""
    store = stores.unpack("4.9.7-shop", tmp_path / "light")
    (path,) = (store / "config").glob("lmqConsumerOffset.json")
    plain = stores.unpack("4.9.7-shop", tmp_path / "plain")
    for other in (plain / "config").glob("*onsumerOffset.json*"):
        other.unlink()
    (plain / "config" / "consumerOffset.json").write_bytes(path.read_bytes())
    for root, file, setting in ((store, "true", "true"), (store, "true", "false"), (store, "true", "true "),
                                (plain, "false", "false"), (plain, "false", "true")):  # fmt: skip
        settings = {"enableLmq": setting}
        predicted = list(switches(Snapshot(open_store(root, BrokerConf(settings))), parse_version(version)))
        [real] = harness(version).survey([(root, [])], settings)
        assert real["refuses"] is None
        assert bool(real["committed"]) == (file == setting)
        assert bool(predicted) == (file != setting)


def database(directory: Path) -> None:
    directory.mkdir()
    (directory / "CURRENT").write_text("MANIFEST-000004\n")


@pytest.mark.one_in(12)
@pytest.mark.parametrize("upgrade", list(upgrades()), ids=lambda each: f"{each.version}-{','.join(each.stops)}")
def test_refusals_are_the_broker_s(harness: Callable[[str], Harness], upgrade: Upgrade, tmp_path: Path) -> None:
    """The harness names sizes both ways, so that of a name that is not read is given as the default."""
    for settings, as_read in ((upgrade.stops, upgrade.as_read), (upgrade.starts, {})):
        store = stores.unpack(upgrade.store, tmp_path / ("stops" if as_read or settings is upgrade.stops else "starts"))
        upgrade.prepare(store)
        snapshot = Snapshot(open_store(store, BrokerConf(dict(settings))))
        predicted = [refusal.why for refusal in refusals(snapshot, parse_version(upgrade.version))]
        [real] = harness(upgrade.version).survey([(store, [])], {**settings, **as_read})
        assert bool(real["refuses"]) == (settings is upgrade.stops)
        assert bool(predicted) == bool(real["refuses"]), predicted
