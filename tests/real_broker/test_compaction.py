"""A real broker on compacted topics whose files are missing, damaged, or repaired."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.real_broker.harness import Harness
from tests.real_broker.tools import HarnessError
from tests.verify.compacted_damages import DAMAGES

pytestmark = [pytest.mark.broker, pytest.mark.slow]
SETTINGS = {"compactionMappedFileSize": "4600", "compactionCqMappedFileSize": "920"}
PULLS = {"pull": [["state", 0, offset, 200, None] for offset in (0, 50, 57)]}


@pytest.mark.rare
@pytest.mark.one_in(2)
@pytest.mark.parametrize("part", ["compactionLog", "compactionCq"])
@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_a_compacted_log_that_is_missing(
    harness: Callable[[str], Harness], golden_store: GoldenStore, tmp_path: Path, version: str, part: str
) -> None:
    """As verify says: consumers get nothing; without compaction the broker serves the plain queue."""
    store = copied(golden_store(f"more/{version}-compacted"), tmp_path / "store")
    statuses = {}
    for name, setting in (("whole", "true"), ("missing", "true"), ("off", "false")):
        if name == "missing":
            shutil.rmtree(store / "compaction" / part)
            found = rmqtool("verify", store, "--json", "--skip", "timer", "--broker-version", version).document
            code = "store.compacted-log" if part == "compactionLog" else "compaction.files"
            assert [each["code"] for each in found["findings"] if each["severity"] == "error"] == [code]
        answers = harness(version).ask(store, PULLS, {**SETTINGS, "enableCompaction": setting})["pull"]
        statuses[name] = [answer["status"] for answer in answers]
    assert statuses == {"whole": ["FOUND"] * 3, "missing": ["NO_MATCHED_LOGIC_QUEUE"] * 3, "off": ["FOUND"] * 3}


@pytest.mark.rare
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name", ["no file of units", "units not yet replaced", "half replaced", "a short file of units", "a unit of zeros",
             "units at the end", "a log file cut in a record", "a magic code"],
)  # fmt: skip
@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_a_repaired_queue(
    harness: Callable[[str], Harness], golden_store: GoldenStore, tmp_path: Path, version: str, name: str
) -> None:
    """A start that is refused is predicted; after the repair consumers get all that they got before the damage."""
    store = copied(golden_store(f"more/{version}-compacted"), tmp_path / "store")
    whole = harness(version).ask(store, PULLS, SETTINGS)["pull"]
    DAMAGES[name].apply(store)
    broken = copied(store, tmp_path / "broken")
    if DAMAGES[name].refuses:
        with pytest.raises(HarnessError):
            harness(version).ask(broken, PULLS, SETTINGS)
    elif name != "a magic code":  # whose bytes are sent as they are
        assert harness(version).ask(broken, PULLS, SETTINGS)["pull"] != whole
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in SETTINGS.items()))
    for _ in range(2):  # units are judged again once the log is complete
        rmqtool("repair", store, "--yes", "--broker-conf", conf)
    assert harness(version).ask(store, PULLS, SETTINGS)["pull"] == whole
