"""What is lost of the configuration of a broker's store is found, whatever the release, and changes the verdict."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.config_json import read_config_file
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.verify.circumstances import committed
from tests.verify.config_losses import HEALTHY, LOSSES
from tests.verify.small_store import small_store
from tests.verify.verifying import codes_of, only, verify

RELEASES = ("4.4.0", "4.9.7", "5.3.3", "5.5.0")


def rows() -> Iterator[tuple[str, str]]:
    """Each loss with an old and a new release."""
    for number, (name, loss) in enumerate(LOSSES.items()):
        for release in RELEASES[number % 2 :: 2] if not loss.only else RELEASES:
            if release.startswith(tuple(loss.only.split()) or RELEASES):
                yield release, name


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize(("release", "name"), list(rows()))
def test_what_is_lost_is_found(release: str, name: str, tmp_path: Path) -> None:
    """Under its code, with its severity, and with what is lost; a loss above information is no clean verdict."""
    loss = LOSSES[name]
    store = stores.unpack(f"{release}-shop", tmp_path)
    loss.apply(store)
    outcome = verify(store, version=release)
    found = [(finding.severity, finding.message) for finding in outcome.findings if finding.code == loss.code]
    assert loss.severity in {severity for severity, _ in found}, outcome.findings
    assert any(loss.says in message for _, message in found), found
    assert (outcome.verdict == "clean") == (loss.severity == "info")
    if loss.code == "start.refuses":
        assert outcome.start is not None
        assert "config/" in str(outcome.start.refuses)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["delays, 0", "delays, older"])
def test_a_slave_lags(name: str, tmp_path: Path) -> None:
    """It takes delay offsets over every ten seconds (4.x) or once a minute (5.x)."""
    store = stores.unpack("5.3.3-shop", tmp_path)
    LOSSES[name].apply(store)
    assert verify(store, version="5.3.3", conf=BrokerConf({"brokerRole": "ASYNC_MASTER"})).verdict == "corrupt"
    outcome = verify(store, version="5.3.3", conf=BrokerConf({"brokerRole": "SLAVE"}))
    assert outcome.verdict == "clean"
    assert [each.severity for each in outcome.findings if each.code == LOSSES[name].code]


@pytest.mark.slow
def test_a_slave_that_skips_messages(tmp_path: Path) -> None:
    """No lag puts a delay offset after messages that were never delivered, or leaves a slave without its files."""
    for number, name in enumerate(("delays, ends", "delays", "topics")):
        store = stores.unpack("5.3.3-shop", tmp_path / str(number))
        LOSSES[name].apply(store)
        outcome = verify(store, version="5.3.3", conf=BrokerConf({"brokerRole": "SLAVE"}))
        assert outcome.verdict == "corrupt"
        assert LOSSES[name].code in {each.code for each in outcome.findings if each.severity == "error"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("release", ["4.4.0", "5.3.3"])
def test_what_is_not_lost_is_not_reported(release: str, name: str, tmp_path: Path) -> None:
    """Copies, kills, first seconds, and what operators do: nothing above information about the configuration."""
    store = stores.unpack(f"{release}-shop", tmp_path)
    HEALTHY[name](store)
    found = verify(store, version=release).findings
    assert [one.message for one in found if one.code.startswith("config.") and one.severity != "info"] == []


@pytest.mark.parametrize(("offset", "is_reported"), [(12, False), (11, True)])
def test_a_backup_proves_nothing_behind_the_end_of_a_queue(tmp_path: Path, offset: int, is_reported: bool) -> None:
    """A repair moves offsets into the range of what is left; at the end of a queue nothing is consumed again."""
    store = small_store(tmp_path / "store")
    committed(offset)(store)
    (store / "config" / "consumerOffset.json.bak").write_text('{"offsetTable":{"orders@group":{0:500}}}')
    assert ("config.wrong-offset" in codes_of(verify(store))) == is_reported


def test_a_backup_proves_nothing_behind_the_end_of_a_delay_queue(tmp_path: Path) -> None:
    """The same of delay levels."""
    store = stores.unpack("5.3.3-shop", tmp_path)
    path = store / "config" / "delayOffset.json"
    content = read_config_file(path)
    content["offsetTable"]["1"] += 100
    path.with_name("delayOffset.json.bak").write_text(json.dumps(content))
    assert "config.delay-offset" not in codes_of(verify(store))


@pytest.mark.slow
def test_a_log_without_configuration(tmp_path: Path) -> None:
    """A copy of log and queues alone, and a broker that has just begun, are no losses."""
    store = stores.unpack("5.3.3-single", tmp_path)
    assert codes_of(verify(store)) == set()
    assert [one.severity for one in verify(store).findings if one.code == "config.missing"] == ["info"]
    empty = stores.unpack("5.3.3-empty", tmp_path)
    (empty / "config").mkdir()
    assert "config.missing" not in codes_of(verify(empty), info=True)
    shutil.copy(stores.unpack("5.3.3-shop", tmp_path) / "config" / "topics.json", empty / "config")
    assert "config.missing" not in codes_of(verify(empty), info=True)


def test_only_what_was_asked_for(tmp_path: Path) -> None:
    """A selection of codes looks at what it names, and at nothing else."""
    store = stores.unpack("4.9.7-shop", tmp_path)
    LOSSES["delays"].apply(store)
    assert codes_of(verify(store, selection=only("config.missing"))) == {"config.missing"}
    assert codes_of(verify(store, selection=only("index."))) == set()


@pytest.mark.slow
@pytest.mark.parametrize(("release", "is_found"), [("4.4.0", False), ("4.9.4", True)])
def test_a_copy_without_times_of_a_stopped_broker(
    release: str, is_found: bool, golden_store: GoldenStore, tmp_path: Path
) -> None:
    """Up to 4.9.2 a stop does not write delay offsets: where all files are as new as a copy, nobody knows when."""
    store = copied(golden_store("4.4.0-shop"), tmp_path / "store")
    file = store / "config" / "delayOffset.json"
    file.write_text(file.read_text().replace("4:6", "4:0"))
    assert "config.delay-offset" in codes_of(verify(store, version=release))
    for path in store.rglob("*"):
        os.utime(path)
    assert ("config.delay-offset" in codes_of(verify(store, version=release))) is is_found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ran_s", "release", "conf", "found"),
    [
        (10.0, "4.7.1", {}, ("error", "delays", 13)),
        (9.9, "4.7.1", {}, ("info", "delays-unwritten", 13)),
        (0, "4.7.1", {}, ("info", "delays-unwritten", 13)),  # the times are those of a copy
        (9.9, None, {}, ("info", "delays-unwritten", 13)),
        (9.9, "4.9.3", {}, ("error", "delays", 13)),  # a stop writes them
        (15.6, "4.7.1", {}, ("error", "delays", 7)),  # the write came before the other deliveries
        (15.6, "4.7.1", {"flushDelayOffsetInterval": "5000"}, ("error", "delays", 13)),
    ],
)
def test_delay_offsets_that_a_broker_did_not_write(
    ran_s: float, release: str | None, conf: dict[str, str], found: tuple[str, str, int], tmp_path: Path
) -> None:
    """Up to 4.9.2 it writes them ten seconds after its start first, and not when it stops."""
    store = stores.unpack("4.7.1-shop", tmp_path)
    LOSSES["delays"].apply(store)
    stopped = min((store / name).stat().st_mtime for name in ("checkpoint", "config/consumerOffset.json"))
    os.utime(store / "lock", (stopped - ran_s, stopped - ran_s))
    outcome = verify(store, version=release, conf=BrokerConf(conf))
    [finding] = [each for each in outcome.findings if each.code == "config.missing"]
    assert (finding.severity, finding.details["proof"], finding.details["messages"]) == found
    is_lost = finding.severity == "error"
    assert outcome.verdict == ("corrupt" if is_lost else "clean")
    assert outcome.clients is not None
    assert outcome.clients.delayed.again == (found[2] if is_lost else 0)
