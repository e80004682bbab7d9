"""An index of which a part is lost: queries by key find fewer messages, and a rebuild brings them back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqtool.cli import run
from rmqtool.rules.broker_conf import BrokerConf
from tests.golden import stores
from tests.verify.circumstances import log_of
from tests.verify.lost_parts import Loss, emptied, files_of, without, zero
from tests.verify.verifying import codes_of, verify


def cut_to_nothing(store: Path) -> None:
    """The newest index file has no byte."""
    os.truncate(files_of(store, "index")[-1], 0)


def garbage_in_the_header(store: Path) -> None:
    """The newest index file begins with nonsense."""
    with files_of(store, "index")[-1].open("r+b") as file:
        file.write(b"\xde\xad\xbe\xef" * 10)


def zeros_in_the_header(store: Path) -> None:
    """The newest index file counts no unit."""
    zero(files_of(store, "index")[-1], 0, 40)


LOSSES = {
    "removed": without("index"),
    "emptied": emptied("index"),
    "no newest file": lambda store: files_of(store, "index")[-1].unlink(),
    "zeroed file": lambda store: zero(files_of(store, "index")[-1]),
    "empty file": cut_to_nothing,
    "garbage header": garbage_in_the_header,
    "zero header": zeros_in_the_header,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-shop", "5.5.0-clean"])
@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES.keys())
def test_what_is_lost_is_a_finding(name: str, lose: Loss, tmp_path: Path) -> None:
    """The verdict is not clean, and only the index is blamed."""
    store = stores.unpack(name, tmp_path)
    lose(store)
    outcome = verify(store, version=name.partition("-")[0])
    assert "index.missing" in codes_of(outcome)
    assert {code.partition(".")[0] for code in codes_of(outcome)} == {"index"}
    assert outcome.verdict == "corrupt"


@pytest.mark.parametrize("lose", [cut_to_nothing, garbage_in_the_header, zeros_in_the_header])
def test_the_file_is_named(lose: Loss, tmp_path: Path) -> None:
    """One whose header counts no unit."""
    store = stores.unpack("4.9.7-shop", tmp_path)
    lose(store)
    findings = verify(store).findings
    found = [finding for finding in findings if finding.code == "index.header"]
    assert [finding.file for finding in found] == [f"index/{files_of(store, 'index')[-1].name}"]
    assert not [finding for finding in findings if "there is no index file" in finding.message]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.9.7-shop", "5.3.3-shop"])
@pytest.mark.parametrize("loss", ["removed", "empty file", "garbage header"])
def test_the_remedy_mends_it(name: str, loss: str, tmp_path: Path) -> None:
    """The printed command, carried out, and for damaged indexes alone; a second run has nothing to do."""
    store = stores.unpack(name, tmp_path)
    LOSSES[loss](store)
    remedies = {finding.remedy for finding in verify(store).findings if finding.severity != "info"}
    assert remedies == {f"rmqtool rebuild-index {store} --dry-run"}
    conf = tmp_path / "broker.conf"  # no index file is left that would show its size
    conf.write_text("maxHashSlotNum=50\nmaxIndexNum=1000\n")
    assert run(["rebuild-index", str(store), "--only-damaged", "--yes", "--broker-conf", str(conf)]) == 0
    assert verify(store).verdict == "clean"


@pytest.mark.parametrize("setting", ["messageIndexEnable", "indexFileWriteEnable"])
def test_a_broker_that_keeps_no_index(setting: str, tmp_path: Path) -> None:
    """As broker.conf says: information."""
    store = stores.unpack("5.3.3-shop", tmp_path)
    without("index")(store)
    outcome = verify(store, conf=BrokerConf({setting: "false"}))
    assert "index.missing" in codes_of(outcome, info=True) - codes_of(outcome)
    assert outcome.verdict == "clean"


def test_messages_without_keys(tmp_path: Path) -> None:
    """Nothing is to be found of them in an index."""
    store = log_of({}, {})(tmp_path / "store")
    assert not (store / "index").exists()
    assert verify(store).verdict == "clean"


@pytest.mark.slow
def test_after_a_kill(tmp_path: Path) -> None:
    """Keys of messages that the next start dispatches again are put then; older ones are lost."""
    store = stores.unpack("5.3.3-killed", tmp_path)
    without("index")(store)
    assert "index.missing" not in codes_of(verify(store, version="5.3.3"))
    with (store / "checkpoint").open("r+b") as file:  # the newest message but 5 s, and the rest lies in that time
        later = (int.from_bytes(file.read(8), "big") + 3_000).to_bytes(8, "big")
        file.seek(0)
        file.write(later + later)
    outcome = verify(store, version="5.3.3")
    assert "index.missing" in codes_of(outcome)
    assert outcome.verdict == "corrupt"
