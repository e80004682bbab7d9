"""Index units are read once: for the log, and for the chains of their hash slots."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rmqtool.base.files import InputFile
from rmqtool.formats.index_file import UNIT_SIZE, unit_position
from rmqtool.rebuild.apply import write_output
from rmqtool.rebuild.options import RebuildOptions
from rmqtool.rebuild.source import open_source
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.store.store import open_store
from tests.building import START_TIME
from tests.deriving import derive
from tests.unchanged import unchanged
from tests.verify.damages import overwrite
from tests.verify.lost_parts import files_of
from tests.verify.small_store import QUEUE_FILE_SIZE, StoreBuilder
from tests.verify.verifying import codes_of, verify

SLOTS, ROOM = 500, 9_000
CONF = BrokerConf({"maxHashSlotNum": str(SLOTS), "maxIndexNum": str(ROOM)})
MESSAGES, KEYS = 40, 500
FIRST_FILE = ROOM - 1
"""Units in each file but the last one."""

PROBED = 1_500
"""Units that are read before, to know geometry, release and borders of parts."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three index files, and a log that is cut into many parts, whose borders are not those of the files."""
    builder = StoreBuilder(file_size=1 << 16)
    for number in range(MESSAGES):
        keys = " ".join(f"{number:x}.{key}" for key in range(KEYS))
        builder.put("payments", number % 4, store_timestamp=START_TIME + number, properties={"KEYS": keys})
    path = derive(builder.write(tmp_path / "store"), QUEUE_FILE_SIZE, geometry=None)
    options = RebuildOptions(frozenset(["index"]), version=Version(5, 3, 3))
    write_output(open_source(open_store(path, CONF), options), tmp_path / "rebuilt")
    (tmp_path / "rebuilt" / "index").rename(path / "index")
    return path


@pytest.fixture
def reads(store: Path, monkeypatch: pytest.MonkeyPatch) -> dict[Path, np.ndarray]:
    """How many times each byte of each index file was read."""
    counts = {path: np.zeros(path.stat().st_size, dtype=np.int64) for path in files_of(store, "index")}
    read = InputFile.read

    def counted(file: InputFile, position: int, size: int) -> bytes:
        data = read(file, position, size)
        if file.path in counts:
            counts[file.path][position : position + len(data)] += 1
        return data

    monkeypatch.setattr(InputFile, "read", counted)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("part_size", [1 << 15, 1 << 17, 1 << 26])
def test_units_are_read_once(store: Path, reads: dict[Path, np.ndarray], part_size: int) -> None:
    """Each unit is read, and but for a few that are probed none is read again, however the log is cut."""
    with unchanged(store):
        outcome = verify(store, conf=CONF, part_size=part_size)
    assert outcome.verdict == "clean"
    assert len(reads) == 3
    total = again = 0
    for counts in reads.values():
        left = MESSAGES * KEYS - total
        units = min(left, FIRST_FILE)
        at = unit_position(SLOTS, 1)
        of_units = counts[at : at + units * UNIT_SIZE : UNIT_SIZE]
        assert of_units.min() >= 1
        again += int((of_units > 1).sum())
        total += units
    assert again < PROBED


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1, 4_000, FIRST_FILE - 100, FIRST_FILE + 1, FIRST_FILE + 5_000])
def test_wrong_links_are_found_in_units_that_the_log_has_read(store: Path, unit: int) -> None:
    """At the beginning, in the midst and at the end of a file: what one process finds, several find too."""
    file, own = divmod(unit - 1, FIRST_FILE)
    path = files_of(store, "index")[file]
    position = unit_position(SLOTS, own + 1) + UNIT_SIZE - 4
    overwrite(store, str(path.relative_to(store)), position, (own + 1).to_bytes(4, "big"))
    found = verify(store, conf=CONF, part_size=1 << 15)
    assert "index.chain" in codes_of(found)
    of_two = verify(store, conf=CONF, part_size=1 << 15, jobs=2)
    assert [str(each) for each in found.findings] == [str(each) for each in of_two.findings]


@pytest.mark.slow
def test_a_file_without_units_has_no_links(store: Path) -> None:
    """It begins where the file after it does, and is not taken for that one."""
    first, second, _ = files_of(store, "index")
    (store / "index" / f"{int(first.name) + 1}").write_bytes(bytes(second.stat().st_size))
    assert int(first.name) + 1 < int(second.name)
    assert "index.slot" not in codes_of(verify(store, conf=CONF, part_size=1 << 15))
