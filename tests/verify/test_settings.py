"""Values of broker.conf as each release reads them, and what a start does with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.broker.recovery import Recovery
from rmqtool.rules.broker_conf import BrokerConf, parse_broker_conf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.unchanged import unchanged
from tests.verify.circumstances import killed, log_of
from tests.verify.small_store import FILE_SIZE, small_store
from tests.verify.verifying import codes_of, only, verify

LOG, OLD_LOG, QUEUES = "mappedFileSizeCommitLog", "mapedFileSizeCommitLog", "mappedFileSizeConsumeQueue"
SETTING, REFUSES = "upgrade.setting", "start.refuses"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_store(tmp_path_factory.mktemp("settings") / "store")


@pytest.mark.parametrize(
    ("text", "version", "setting"),
    [
        (f"{LOG}={FILE_SIZE}", "4.7.1", None),
        (f"{LOG}={FILE_SIZE} ", "4.7.1", LOG),
        (f"{LOG}={FILE_SIZE}\\\n ", "5.5.0", None),
        (f"{LOG}={FILE_SIZE}\\u0020", "5.5.0", LOG),
        (f"{LOG}=4K", "5.5.0", LOG),
        (f"{LOG} {FILE_SIZE} # bytes", "5.5.0", LOG),
        (f"{LOG}:0{FILE_SIZE}", "5.5.0", None),
        (f"{LOG}=1\n{LOG}={FILE_SIZE}", "5.5.0", None),
        (f"{LOG}=", "5.5.0", None),
        (f"{OLD_LOG}={FILE_SIZE}", "4.4.0", None),
        (f"{OLD_LOG}={FILE_SIZE}", "4.7.1", OLD_LOG),
        (f"{OLD_LOG}={FILE_SIZE}\n{LOG}={FILE_SIZE}", "4.7.1", None),
        (f"{LOG}={FILE_SIZE}", "4.5.1", LOG),
        (f"{QUEUES}=160 ", "5.5.0", QUEUES),
        ("expectConsumerNumUseFilter=0", "5.5.0", "expectConsumerNumUseFilter"),
        ("expectConsumerNumUseFilter=0 ", "5.5.0", None),
    ],
)
def test_a_size_that_is_not_read(store: Path, text: str, version: str, setting: str | None) -> None:
    """Its default counts, on which the broker does not start; the setting is named as the reason."""
    conf = parse_broker_conf(text)
    snapshot = Snapshot(open_store(store, conf), parse_version(version))
    with unchanged(store):
        start = Recovery(snapshot, RecoveryRules.of(parse_version(version), snapshot.store.conf)).predict()
    assert (start.refuses is not None, start.setting) == (setting is not None, setting)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "elsewhere"), [("4.9.7", True), ("5.1.4", True), ("5.2.0", False), ("5.5.0", False)]
)
def test_blanks_behind_paths(store: Path, version: str, elsewhere: bool) -> None:
    """Before 5.2.0 the broker opens another directory, and has nothing; the root's blank alone leaves it the log."""
    conf = BrokerConf({"storePathRootDir": f"{store} ", "storePathCommitLog": f"{store}/commitlog "})
    outcome = verify(store, conf=conf, version=version)
    assert ("start.other-directory" in codes_of(outcome)) == elsewhere
    assert outcome.start is not None
    assert (outcome.start.messages_lost > 0) == elsewhere
    assert outcome.start.setting == ("storePathRootDir" if elsewhere else None)
    assert (outcome.start.max_offset_after == 0) == elsewhere
    log_alone = verify(store, conf=BrokerConf({"storePathCommitLog": f"{store}/commitlog "}), version=version)
    assert log_alone.start is not None
    assert (log_alone.start.setting == "storePathCommitLog") == elsewhere
    root_alone = verify(store, conf=BrokerConf({"storePathRootDir": f"{store} "}), version=version)
    assert root_alone.start is not None
    assert (root_alone.start.messages_lost > 0) == elsewhere


@pytest.mark.parametrize(
    ("name", "value", "severities"),
    [
        ("brokerRole", "SLAVE ", ["warning"]),
        ("brokerRole", "ASYNC_MASTER ", ["info"]),
        ("brokerName", "a ", ["warning"]),
        ("fileReservedTime", "48h", ["warning"]),
        ("enableLmq", "true ", ["warning"]),
        ("enableLmq", "false ", ["info"]),
        ("deleteWhen", "04", []),
        ("fileReservedTime", "48", []),
    ],
)
def test_values_that_are_not_what_they_look(store: Path, name: str, value: str, severities: list[str]) -> None:
    """They are findings without a named release, too, with the setting and its value."""
    conf = BrokerConf({name: value})
    assert len(verify(store, conf=conf, selection=only(SETTING)).findings) == len(severities)
    outcome = verify(store, conf=conf, selection=only(SETTING), version="4.9.7")
    assert [finding.severity for finding in outcome.findings] == severities
    assert all((each.details["setting"], each.details["value"]) == (name, value) for each in outcome.findings)


def multi_dispatch(offsets: str) -> dict[str, str]:
    """Properties of a record of two light queues."""
    return {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": offsets}


@pytest.mark.parametrize(
    ("properties", "version", "is_on", "refuses"),
    [
        ({}, "4.9.2", True, False),
        ({}, "4.9.3", True, True),
        ({}, "4.9.3", False, False),
        ({}, "4.9.4", True, False),
        ({}, "5.3.3", True, False),
        ({"KEYS": "k"}, "4.9.3", True, False),
        (multi_dispatch("0,x"), "4.9.3", True, True),
        (multi_dispatch("0,x"), "5.3.3", True, True),
        (multi_dispatch("0,x"), "5.3.3", False, False),
        (multi_dispatch("0,9223372036854775808"), "4.9.7", True, True),
        (multi_dispatch("0"), "5.3.3", True, False),
        (multi_dispatch("0,0"), "5.3.3", True, False),
    ],
)
def test_a_record_that_ends_the_dispatching(
    tmp_path: Path, properties: dict[str, str], version: str, is_on: bool, refuses: bool
) -> None:
    """4.9.3 forgets that a record may have no properties; all of them parse each offset of a light queue."""
    root = log_of({"properties": {"KEYS": "k"}}, {"properties": properties})(tmp_path / "store")
    killed(root)
    conf = BrokerConf({"enableMultiDispatch": "true" if is_on else "false", "enableLmq": "true"})
    outcome = verify(root, conf=conf, version=version)
    assert outcome.start is not None
    assert (outcome.start.refuses is not None) == refuses
    assert outcome.start.setting == ("enableMultiDispatch" if refuses else None)
    assert ("enableMultiDispatch=false" in str(outcome.start.refuses)) == refuses
