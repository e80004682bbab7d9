"""Delay levels of a store: from broker.conf, else from its delay queues, else the default."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.base.mapped_files import file_at
from rmqtool.formats.consume_queue import UNIT_DTYPE, UNIT_SIZE, is_written
from rmqtool.formats.layout import decode_units
from rmqtool.rules.broker_conf import BrokerConf, delay_levels_of
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.store.delays_seen import delay_levels_of_store, observed_delays
from rmqtool.store.store import CONSUME_QUEUE, open_store
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores

SHOPS = [name for name in stores.names() if name.endswith("-shop")]
IN_SHOPS = {1: 1_000, 2: 1_000, 3: 1_000, 4: 1_000, 17: 30 * 60_000, 18: 120 * 60_000}
LEVEL_17 = f"{CONSUME_QUEUE}/{SCHEDULE_TOPIC}/16/{'0' * 20}"  # of three units
TAGS_CODE = 12  # where it stands in a unit
QUEUE_ID = 12  # where it stands in a record


@pytest.mark.parametrize("name", SHOPS)
def test_levels_of_another_configuration_are_seen(name: str, golden_store: GoldenStore) -> None:
    """Those that have units are as the broker had them, the others as by default."""
    store = open_store(golden_store(name))
    assert observed_delays(store) == IN_SHOPS
    default = delay_levels_of(BrokerConf())
    expected = [IN_SHOPS.get(level, delay) for level, delay in enumerate(default.delays, 1)]
    assert list(delay_levels_of_store(store).delays) == expected


@pytest.mark.parametrize("name", [name for name in stores.driven_names() if name.endswith(("-clean", "-trimmed"))])
def test_default_levels_are_seen(name: str, golden_store: GoldenStore) -> None:
    """A store of default levels shows no others."""
    store = open_store(golden_store(name))
    default = delay_levels_of(BrokerConf())
    seen = observed_delays(store)
    assert seen
    assert all(delay == default.delays[level - 1] for level, delay in seen.items())
    assert delay_levels_of_store(store) == default


def test_broker_conf_decides(golden_store: GoldenStore) -> None:
    """What is configured is not guessed."""
    conf = BrokerConf({"messageDelayLevel": "5s 6s"})
    assert delay_levels_of_store(open_store(golden_store(SHOPS[0]), conf)).delays == (5_000, 6_000)


@pytest.fixture
def shop(tmp_path: Path, unpacked: GoldenStore) -> Path:
    """A store to damage."""
    return copied(unpacked("5.5.0-shop"), tmp_path / "store")


def change_unit(shop: Path, number: int) -> None:
    with (shop / LEVEL_17).open("r+b") as file:
        file.seek(number * UNIT_SIZE + TAGS_CODE + 4)
        file.write(b"\x12\x34\x56\x78")


def test_one_wrong_unit_is_outvoted(shop: Path) -> None:
    """More than half of the units decide."""
    change_unit(shop, 1)
    assert observed_delays(open_store(shop)) == IN_SHOPS


def test_without_agreement_the_default_counts(shop: Path) -> None:
    """Units that contradict each other, or whose records are gone, show nothing."""
    change_unit(shop, 0)
    change_unit(shop, 1)
    assert 17 not in observed_delays(open_store(shop))
    shutil.rmtree(shop / "commitlog")
    assert observed_delays(open_store(shop)) == {}


def test_more_levels_than_by_default(shop: Path) -> None:
    """A broker may have more levels; one in between that shows nothing counts as the last of the default."""
    queues = shop / CONSUME_QUEUE / SCHEDULE_TOPIC
    units = decode_units(UNIT_DTYPE, (shop / LEVEL_17).read_bytes())
    for offset in units[is_written(units)]["physical_offset"].tolist():
        log = file_at(open_store(shop).commit_log().files, offset)
        assert log is not None
        with log.path.open("r+b") as file:
            file.seek(offset - log.start_offset + QUEUE_ID)
            file.write((19).to_bytes(4, "big"))
    (queues / "16").rename(queues / "19")
    delays = delay_levels_of_store(open_store(shop)).delays
    assert (delays[16], delays[18], delays[19], len(delays)) == (20 * 60_000 * 3, 2 * 3_600_000, 30 * 60_000, 20)


def test_what_cannot_be_read_shows_nothing(shop: Path) -> None:
    """Others tell that it cannot be read."""
    directory = shop / CONSUME_QUEUE / SCHEDULE_TOPIC
    shutil.rmtree(directory)
    directory.write_bytes(b"")
    assert observed_delays(open_store(shop)) == {}
