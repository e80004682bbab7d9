"""A log that is lost, or has lost its end: on copies of real stores, where other files still know of it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from rmqtool.cli import run
from rmqtool.rules.broker_conf import BrokerConf
from tests.golden import stores
from tests.verify.lost_parts import Loss, both, emptied, last_log_file_gone, last_log_file_zeroed, without
from tests.verify.verifying import codes_of, verify

DERIVED = ("consumequeue", "batchconsumequeue", "index")
NAMES = ("4.4.0-clean", "4.9.7-clean", "5.3.3-clean", "5.5.0-clean", "4.9.7-shop", "5.3.3-shop")
DRIVEN = NAMES[:4]


def message_of(store: Path, code: str) -> str:
    """That of the first finding under a code."""
    return next(finding.message for finding in verify(store).findings if finding.code == code)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "lose",
    [
        pytest.param(both(emptied("commitlog"), without(*DERIVED)), id="emptied"),
        pytest.param(without("commitlog", *DERIVED), id="not there"),
        pytest.param(without("commitlog", "consumequeue", "batchconsumequeue"), id="index left"),
        pytest.param(without("commitlog", "consumequeue", "checkpoint"), id="without checkpoint"),
    ],
)
def test_the_log_is_gone(name: str, lose: Loss, tmp_path: Path) -> None:
    """With queues and index too: what is left proves that there were messages."""
    store = stores.unpack(name, tmp_path)
    lose(store)
    outcome = verify(store)
    assert "commitlog.missing" in codes_of(outcome)
    assert outcome.verdict == "corrupt"


def test_it_says_what_is_known(tmp_path: Path) -> None:
    """How much, since when, and of which groups and queues."""
    store = stores.unpack("4.9.7-shop", tmp_path)
    both(emptied("commitlog"), without(*DERIVED))(store)
    message = message_of(store, "commitlog.missing")
    assert "checkpoint knows a message of 2026-11-21T" in message
    assert "groups have consumed messages: " in message
    assert "delayOffset.json has delivered level 1 up to " in message


@pytest.mark.parametrize("backup", ["", ".bak"])
def test_offsets_that_are_cut_tell_too(backup: str, tmp_path: Path) -> None:
    """What can be read of them, though no start of a broker takes it."""
    store = stores.unpack("4.9.7-clean", tmp_path)
    offsets = store / "config" / "consumerOffset.json"
    text = offsets.read_bytes()
    both(emptied("commitlog"), without(*DERIVED, "checkpoint", "config"))(store)
    offsets.parent.mkdir()
    offsets.write_bytes(b"{")
    offsets.with_name(offsets.name + backup).write_bytes(text[: len(text) // 2])
    file = f"config/consumerOffset.json{backup}"
    assert f"groups have consumed messages, as the readable part of {file} shows" in message_of(
        store, "commitlog.missing"
    )
    offsets.with_name(offsets.name + backup).write_bytes(b'{"offsetTable":{"orders@some":{0:0,1:0},"early')
    assert "commitlog.missing" not in codes_of(verify(store))


@pytest.mark.slow
def test_a_checkpoint_of_random_bytes_proves_nothing(tmp_path: Path) -> None:
    """Neither that messages are lost, nor which release wrote it; the next start sets it right."""
    store = stores.unpack("4.9.7-clean", tmp_path)
    releases = verify(store).snapshot.releases
    fields = (-(1 << 60), 1 << 62, -5, 1 << 61, 1 << 61, 1 << 61)
    (store / "checkpoint").write_bytes(struct.pack(">6q", *fields).ljust(4096, b"\1"))
    outcome = verify(store)
    assert codes_of(outcome) == {"checkpoint.future", "checkpoint.logics-offset"}
    assert outcome.verdict == "dirty"
    assert outcome.snapshot.releases == releases


@pytest.mark.slow
def test_the_log_is_in_another_place(tmp_path: Path) -> None:
    """Then broker.conf says so, and all is well."""
    store = stores.unpack("5.3.3-shop", tmp_path)
    elsewhere = tmp_path / "elsewhere"
    (store / "commitlog").rename(elsewhere)
    assert "commitlog.missing" in codes_of(verify(store))
    conf = BrokerConf({"storePathCommitLog": str(elsewhere)})
    assert verify(store, conf=conf).verdict == "clean"


@pytest.mark.parametrize("name", ["5.3.3-empty", "5.3.3-single"])
def test_a_store_that_never_had_a_message(name: str, tmp_path: Path) -> None:
    """A broker that has started on an empty directory is well; and one without `commitlog/` as old ones leave it."""
    store = stores.unpack(name, tmp_path)
    assert verify(store).verdict == "clean"
    if name == "5.3.3-empty":
        without("commitlog", *DERIVED)(store)
        (store / "config").mkdir()
        table = {"offsetTable": {"TBW102@group": {"0": 0}}}
        (store / "config" / "consumerOffset.json").write_text(json.dumps(table))
        assert verify(store).verdict == "clean"


@pytest.mark.slow
@pytest.mark.parametrize("name", DRIVEN)
@pytest.mark.parametrize("lose", [last_log_file_gone, last_log_file_zeroed])
def test_the_last_file_is_gone_and_all_is_rebuilt(name: str, lose: Loss, tmp_path: Path) -> None:
    """The checkpoint still proves it, for a rebuild after a clean stop does not set it back; it is on record, too.

    That of 5.3.3 was written 124 ms before the newest message: its last file alone is not missed.
    """
    store = stores.unpack(name, tmp_path)
    if name == "5.3.3-clean":
        last_log_file_gone(store)
    lose(store)
    version = name.partition("-")[0]
    for command in ("rebuild-cq", "rebuild-index"):
        assert run([command, str(store), "--yes", "--broker-version", version]) == 0
    assert run(["undo", "--discard", str(store), "--yes"]) == 0
    outcome = verify(store, version=version)
    found = {"commitlog.end-missing", "checkpoint.future", "store.recorded-loss", "config.offset-out-of-range"}
    assert codes_of(outcome) == found
    assert outcome.verdict == "corrupt"
    message = message_of(store, "commitlog.end-missing")
    assert "the newest message is of 2026-11-21T" in message
    assert "groups have consumed more than their queues have: beyond " in message


@pytest.mark.parametrize("name", ["4.9.7-killed", "5.3.3-killed"])
def test_what_a_power_loss_takes(name: str, tmp_path: Path) -> None:
    """A checkpoint and an index that are ahead of the log after a crash are only dirty."""
    store = stores.unpack(name, tmp_path)
    with (store / "checkpoint").open("r+b") as file:
        file.write((1 << 41).to_bytes(8, "big"))
    outcome = verify(store, version=name.partition("-")[0])
    assert "checkpoint.future" in codes_of(outcome)
    assert "commitlog.end-missing" not in codes_of(outcome)
    assert outcome.verdict == "dirty"


@pytest.mark.parametrize("kept", ["timerlog", "timerwheel"])
def test_only_the_timer_is_left(kept: str, tmp_path: Path) -> None:
    """A unit in its log, or a slot of its wheel, was written for a message."""
    store = stores.unpack("5.3.3-shop", tmp_path)
    both(emptied("commitlog"), without(*DERIVED, "checkpoint", "config", *{"timerlog", "timerwheel"} - {kept}))(store)
    assert kept in message_of(store, "commitlog.missing")
