"""What a verification reports before an upgrade to the release that is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.findings.report import Selection
from rmqtool.rebuild.options import RebuildOptions
from rmqtool.rebuild.plan import make_plan
from rmqtool.rebuild.source import open_source
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.store.store import open_store
from rmqtool.verify.outcome import Outcome
from tests.conftest import GoldenStore
from tests.verify.small_store import small_store
from tests.verify.verifying import codes_of, only, verify

DOUBLE = BrokerConf({"rocksdbCQDoubleWriteEnable": "true"})
"""The small store is of 5.2.0 to 5.3.4."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


def messages(outcome: Outcome, code: str, severity: str = "warning") -> list[str]:
    return [each.message for each in outcome.findings if each.code == code and each.severity == severity]


def test_nothing_before_a_release_is_named(store: Path) -> None:
    outcome = verify(store, conf=BrokerConf({**DOUBLE.settings, "flushDiskTyp": "x"}))
    assert not [code for code in codes_of(outcome, info=True) if code.startswith("upgrade.")]


@pytest.mark.slow
def test_a_refusal_leaves_the_verdict_alone(store: Path) -> None:
    """The store is clean, and the exit status that of findings."""
    outcome = verify(store, version="5.5.0", conf=DOUBLE)
    assert (outcome.verdict, outcome.status) == ("clean", Exit.FINDINGS)
    assert messages(outcome, "upgrade.refused", "error") == [
        "5.5.0: rocksdbCQDoubleWriteEnable=true needs combineCQUseRocksdbForLmq=true: the start is aborted"
    ]
    assert not messages(verify(store, version="5.4.0", conf=DOUBLE), "upgrade.refused", "error")


@pytest.mark.parametrize("version", ["5.2.0", "5.3.3", "5.3"])
def test_a_release_that_may_have_written_the_store_changes_nothing(store: Path, version: str) -> None:
    assert not [code for code in codes_of(verify(store, version=version), info=True) if code.startswith("upgrade.")]


def test_what_certainly_changes_is_a_warning(store: Path) -> None:
    """What the store's broker may do already, and defaults, are information."""
    outcome = verify(store, version="5.5.0")
    assert [message.split()[1] for message in messages(outcome, "upgrade.changed")] == ["5.4.0"]
    [defaults] = messages(outcome, "upgrade.changed", "info")
    assert defaults.startswith("other defaults than in 5.2.0: ")
    assert "autoDeleteUnusedStats false -> true (5.3.1)" in defaults


def test_what_the_last_broker_may_do_already_is_information(golden_store: GoldenStore) -> None:
    """The store is of 4.7.1 to 4.9.8, and 4.9.2 changed how the disk is measured."""
    outcome = verify(golden_store("4.7.1-clean"), version="5.3.3", selection=only("upgrade"))
    assert messages(outcome, "upgrade.changed") == []
    assert [message.split()[1] for message in messages(outcome, "upgrade.changed", "info")] == ["4.9.2", "defaults"]


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_light_queues_as_the_last_broker_left_them(golden_store: GoldenStore, version: str) -> None:
    """They have entries of retry and dead letter topics, which the new one would not give them: these stay."""
    root = golden_store("more/4.9.7-differing")
    assert codes_of(verify(root, version=version)) == {"upgrade.changed"}
    named = RebuildOptions(frozenset(["queues"]), version=parse_version(version))
    plan = make_plan(open_source(open_store(root), named))
    assert plan.is_empty


def test_what_settings_move_elsewhere_is_a_warning_for_any_release(store: Path) -> None:
    outcome = verify(store, version="5.3.3", conf=BrokerConf({"configManagerVersion": "v2"}))
    [message] = messages(outcome, "upgrade.changed")
    assert message.startswith("5.3.3: configManagerVersion=v2 ")
    assert outcome.verdict == "clean"


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("flushDiskTyp", "5.3.3", "flushDiskTyp is read by no release; 5.3.3 reads flushDiskType"),
        ("anything", "5.3.3", "anything is read by no release"),
        ("transferMetadataJsonToRocksdb", "5.5.0", "transferMetadataJsonToRocksdb is read up to 5.3.1, not by 5.5.0"),
        ("commitLogRecoverMaxNum", "5.3.3", "commitLogRecoverMaxNum is read since 5.4.0, not by 5.3.3"),
        ("mappedFileSizeTimerLog", "4.9.7", "mappedFileSizeTimerLog is read since 5.0.0, not by 4.9.7"),
        ("aclEnable", "5.3.3", "aclEnable has no effect since 5.3.3"),
        ("aclEnable", "5.3.2", None),
        ("rmqAddressServerDomain", "5.3.3", None),
    ],
)
def test_settings_that_the_release_does_not_read(store: Path, name: str, version: str, message: str | None) -> None:
    outcome = verify(store, version=version, conf=BrokerConf({name: "1"}), selection=only("upgrade.setting"))
    assert messages(outcome, "upgrade.setting") == ([message] if message else [])


@pytest.mark.parametrize(("value", "count"), [("1", 0), ("2", 1)])
def test_a_setting_under_both_names(store: Path, value: str, count: int) -> None:
    """One broker.conf for old and new brokers loses nothing."""
    conf = BrokerConf({"mapedFileSizeConsumeQueue": "1", "mappedFileSizeConsumeQueue": value})
    outcome = verify(store, version="5.5.0", conf=conf, selection=only("upgrade.setting"))
    assert len(messages(outcome, "upgrade.setting")) == count


def test_findings_that_are_left_out(store: Path) -> None:
    outcome = verify(store, version="5.5.0", conf=DOUBLE, selection=Selection((), ("upgrade",)))
    assert (outcome.verdict, outcome.status, codes_of(outcome)) == ("clean", Exit.OK, set())


def test_evidence_that_cannot_be_read(store: Path) -> None:
    """Garbage in the files that show the release is reported under its own codes."""
    (store / "config" / "consumerOffset.json").write_bytes(b"\xff\x00{")
    (store / "checkpoint").write_bytes(b"")
    assert "upgrade.refused" in codes_of(verify(store, version="5.5.0", conf=DOUBLE))


@pytest.mark.parametrize(("name", "value", "end"), [
    ("enableLmq", "true ", "with the blank after it, it counts as false"), ("enableLmq", "true", None),
    ("mappedFileSizeCommitLog", "1073741824\t", "not a number because of the blank after it, and not read"),
    ("diskMaxUsedSpaceRatio", "75 ", "not a number because of the blank after it, and not read"),
    ("messageDelayLevel", "1s ", None), ("flushDiskType", "SYNC_FLUSH ", None), ("enableLmq", "", None),
    ("mappedFileSizeCommitLog", "64K", "it is not a number, and not read"), ("fileReservedTime", "+72", None),
    ("deleteWhen", "04", None), ("enableLmq", "false ", None),
])  # fmt: skip
def test_blanks_behind_a_value(name: str, value: str, end: str | None, tmp_path: Path) -> None:
    """`Properties` keeps them; `Integer#parseInt` and `Boolean#parseBoolean` do not know them."""
    store = small_store(tmp_path / "store")
    outcome = verify(store, version="5.5.0", conf=BrokerConf({name: value}), selection=only("upgrade.setting"))
    found = messages(outcome, "upgrade.setting")
    assert found == ([f"{name} is {value!r}: {end}"] if end else [])
