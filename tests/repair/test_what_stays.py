"""What a repair leaves, and what its plan says of it before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.fuzz.damages import Damage, applied, settings_of, tried
from tests.golden import stores

OUT_OF_RANGE = "config.offset-out-of-range"
ZEROS_AT_THE_END = (("killed: zeros at the end of the log", 2076716857),)
PAGE_OF_ZEROS = (("commit log file, the last: page of zeros", 2265290076),)


def remaining(plan: Mapping[str, Any]) -> set[str]:
    """The codes that a plan says to stay."""
    return {code for text in plan["remaining"] for code in text.partition(":")[0].split(", ")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "damage", "code"),
    [
        ("5.1.4-shop", ZEROS_AT_THE_END, "store.abort-missing"),
        ("more/5.5.0-rocksdb", PAGE_OF_ZEROS, OUT_OF_RANGE),
    ],
)
def test_the_plan_says_what_the_repair_itself_brings_about(
    tmp_path: Path, name: str, damage: Damage, code: str
) -> None:
    """Entries past the end without `abort`; offsets in a database, past the ends of rebuilt queues."""
    done, repair, problems = tried(damage, stores.unpack(name, tmp_path), stores.version_of(name), settings_of(name))
    assert repair is not None
    assert (done, problems) == (damage, [])
    assert code in remaining(repair.planned)
    assert code in {each["code"] for each in repair.said[0]["findings"]}


@pytest.mark.slow
def test_offsets_that_are_kept_past_the_ends_of_queues(tmp_path: Path) -> None:
    """They are inside their queues until these are rebuilt."""
    store = stores.unpack("5.1.4-shop", tmp_path)
    assert applied(ZEROS_AT_THE_END, store)
    options = ("--broker-version", "5.1.4", "--json")
    for more, stays in (((), set[str]()), (("--keep-offsets",), {OUT_OF_RANGE})):
        planned = rmqtool("repair", store, "--dry-run", *more, *options).document["result"]["plan"]
        assert remaining(planned) & {OUT_OF_RANGE} == stays
        repaired = rmqtool("repair", store, "--yes", *more, *options).document["findings"]
        assert {each["code"] for each in repaired if each["severity"] != "info"} & {OUT_OF_RANGE} == stays
        rmqtool("undo", store, "--yes")
        rmqtool("undo", store, "--yes")


@pytest.mark.slow
def test_offsets_past_the_end_are_no_matter_of_a_start(golden_store: GoldenStore, tmp_path: Path) -> None:
    """It cuts the torn end, completes the queues, and leaves the offsets where they are."""
    store = copied(golden_store("5.3.3-killed"), tmp_path / "store")
    offsets = store / "config/consumerOffset.json"
    offsets.write_text(re.sub(r'("orders@beyond":\{0:)76', r"\g<1>95", before := offsets.read_text()))
    log = next(path for path in sorted((store / "commitlog").iterdir(), reverse=True) if any(path.read_bytes()))
    records = log.read_bytes().rstrip(b"\0")[:-300]
    log.write_bytes(records.ljust(log.stat().st_size, b"\0"))
    options = ("--broker-version", "5.3.3", "--json")
    kept = rmqtool("repair", store, "--dry-run", "--keep-offsets", *options).document["result"]["plan"]
    assert OUT_OF_RANGE in remaining(kept)
    result = rmqtool("verify", store, *options).document["result"]
    repair, start = result["plan"]["steps"]
    assert result["verdict"] == "dirty"
    assert repair["changes"] == ["config/consumerOffset.json: 2 committed offsets moved into range"]
    assert start["text"].startswith("Start the broker")
    done = rmqtool("repair", store, "--yes", *options).document
    assert done["result"]["verdict"] == "dirty"
    assert OUT_OF_RANGE not in {each["code"] for each in done["findings"] if each["severity"] != "info"}
    assert '"orders@beyond":{0:80' in offsets.read_text() != before
    assert rmqtool("repair", store, "--yes", *options).document["result"]["state"] == "nothing"
    rmqtool("undo", store, "--yes")
    (tmp_path / "slave.conf").write_text("brokerRole=SLAVE\n")
    of_slave = rmqtool("verify", store, *options, "--broker-conf", tmp_path / "slave.conf").document
    assert {each["severity"] for each in of_slave["findings"] if each["code"] == OUT_OF_RANGE} == {"info"}
