"""Damage that leaves log, entries and CRCs in order, and takes messages from consumers all the same."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.formats.message import COMPRESSED, CRC32_PROPERTY_SIZE, build_crc32_property, record_crc
from rmqtool.scan.bodies import begins_as_flagged, compressed_but_not_flagged
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from tests.building import LOG, message, write_log
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.repair.damaged_fields import records_of, served
from tests.verify.verifying import codes_of, verify

_LZ4 = bytes.fromhex("04224d18") + b"rest of a frame"
_ZSTD = bytes.fromhex("28b52ffd") + b"rest of a frame"
_PLAIN = b'{"order": 17, "text": "a plain body"}'
BODIES = {
    "zlib": (zlib.compress("".join(f"order {n * 7919};" for n in range(200)).encode()), COMPRESSED, True),
    "zlib by its number": (zlib.compress(_PLAIN * 9, 0), COMPRESSED | 0x300, True),
    "lz4": (_LZ4, COMPRESSED | 0x100, True),
    "zstd": (_ZSTD, COMPRESSED | 0x200, True),
    "plain, not flagged": (_PLAIN, 0, True),
    "empty": (b"", COMPRESSED, True),
    "plain, flagged": (_PLAIN, COMPRESSED, False),
    "zlib, called lz4": (zlib.compress(_PLAIN), COMPRESSED | 0x100, False),
    "lz4, called zstd": (_LZ4, COMPRESSED | 0x200, False),
    "zstd, called zlib": (_ZSTD, COMPRESSED, False),
    "text that begins as zlib does": (b"x^2 + y^2 = z^2", COMPRESSED, False),
    "of no type": (zlib.compress(_PLAIN), COMPRESSED | 0x400, False),
}


def run_of(directory: Path, body: bytes, sys_flag: int = 0) -> RecordRun:
    """A log of one record."""
    write_log(directory, {0: message(body=body, sys_flag=sys_flag)})
    (frames,) = (each for each in scan_files(list_mapped_files(directory / LOG).files) if isinstance(each, RecordRun))
    return frames


@pytest.mark.parametrize("name", BODIES)
def test_heads_of_bodies(tmp_path: Path, name: str) -> None:
    """A few bytes show whether a body begins as its flags say."""
    body, sys_flag, fits = BODIES[name]
    frames = run_of(tmp_path, body, sys_flag)
    assert begins_as_flagged(frames).tolist() == [fits]
    assert compressed_but_not_flagged(frames).tolist() == []


@pytest.mark.parametrize(
    ("body", "rows"), [(zlib.compress(_PLAIN), [0]), (_LZ4, [0]), (_ZSTD, [0]), (b"x*y = z, text", [])]
)
def test_heads_without_the_flag(tmp_path: Path, body: bytes, rows: list[int]) -> None:
    """Compressed bodies that nothing calls so."""
    assert compressed_but_not_flagged(run_of(tmp_path, body)).tolist() == rows


WRONG_FLAGS = {
    "one bit": ("4.9.7-shop", COMPRESSED, "done"),
    "two bits": ("4.9.7-shop", COMPRESSED | 0x100, "nothing"),  # a producer, rather than a flipped bit
    "covered by a CRC": ("5.3.3-crc32-property", COMPRESSED, "done"),
}
"""The store, the bits of the flags of a plain body that change, and what a repair does."""


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG_FLAGS)
def test_a_flag_on_a_plain_body(unpacked: GoldenStore, tmp_path: Path, name: str) -> None:
    """A client drops the rest of the pull: an error. One bit that body and CRC prove to be wrong is put right."""
    golden, bits, state = WRONG_FLAGS[name]
    store = copied(unpacked(golden), tmp_path / "store")
    record = records_of(store)[20]
    before = (store / record.path).read_bytes()
    position, size = record.fields["sys_flag"]
    flags = int.from_bytes(before[position : position + size], "big") ^ bits
    with (store / record.path).open("r+b") as file:
        file.seek(position)
        file.write(flags.to_bytes(4, "big"))
    outcome = verify(store)
    found = [each for each in outcome.findings if each.code == "commitlog.body-compression"]
    assert [(each.severity, each.offset) for each in found] == [("error", record.physical_offset)]
    assert found[0].details["expected_sys_flag"] == flags ^ bits
    assert "commitlog.body-compression" not in codes_of(verify(store, bodies=False))
    plan = rmqtool("--json", "verify", store).document["result"]["plan"]
    left = plan["clients"]["unreachable"]["messages"], plan["clients"]["keys_not_found"]
    done = rmqtool("--json", "repair", store, "--yes").document["result"]
    assert done["state"] == state
    if state == "done":
        assert (store / record.path).read_bytes() == before
        assert left == (0, 0)
        assert done["proof"]["more_lost"] == []
    else:
        assert left[0] > 0


def test_a_flag_that_the_record_was_stored_with(tmp_path: Path) -> None:
    """A right `__CRC32#` of the whole record proves it: nothing is changed."""
    record = message(body=_PLAIN, sys_flag=COMPRESSED, properties=b"KEYS\1k\2" + build_crc32_property(0))
    record = record[:-CRC32_PROPERTY_SIZE] + build_crc32_property(record_crc(record))
    write_log(tmp_path, {0: record})
    found = [each for each in verify(tmp_path).findings if each.code == "commitlog.body-compression"]
    assert [each.details.get("cause") for each in found] == [None]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.7.1-shop", "4.9.7-shop"])
@pytest.mark.parametrize("dropped", [0, 3, 7])
def test_a_unit_is_dropped_and_the_rest_moved(unpacked: GoldenStore, tmp_path: Path, name: str, dropped: int) -> None:
    """The message of the dropped unit reaches nobody: an error, and a repair brings it back."""
    store = copied(unpacked(name), tmp_path / "store")
    before = served(store, records_of(store))
    queue = max(before, key=lambda each: (each[2], each))[:2]
    path = min((store / "consumequeue" / queue[0] / str(queue[1])).iterdir())
    data = path.read_bytes()
    path.write_bytes(data[: dropped * 20] + data[dropped * 20 + 20 :] + bytes(20))
    outcome = verify(store)
    found = [each for each in outcome.findings if each.code == "consumequeue.missing-unit"]
    assert [(each.severity, each.topic, each.queue_offset) for each in found] == [("error", queue[0], dropped)]
    assert rmqtool("--json", "repair", store, "--yes").document["result"]["state"] == "done"
    assert served(store, records_of(store)) == before
    assert rmqtool("--json", "repair", store, "--yes").document["result"]["state"] == "nothing"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-clean"])
@pytest.mark.parametrize("overwritten", [1, 2])
def test_the_last_log_files_are_those_of_before(
    unpacked: GoldenStore, tmp_path: Path, name: str, overwritten: int
) -> None:
    """Entries and keys that still lead to what stood there show what is lost; nothing brings it back."""
    store = copied(unpacked(name), tmp_path / "store")
    before = served(store, records_of(store))
    files = sorted(path for path in (store / LOG).iterdir() if any(path.read_bytes()))
    start = int(files[-overwritten].name)
    for number, file in enumerate(files[-overwritten:]):
        file.write_bytes(files[number].read_bytes())
    result = rmqtool("verify", store, "--json").document["result"]
    gone = sum(offset >= start for offset, _ in before.values())
    for clients in (result["start"]["clients"], result["plan"]["clients"]):
        assert clients["unreachable"]["messages"] == gone
        assert clients["keys_not_found"] == clients["keys_in_damage"] > 0


@pytest.mark.slow
def test_units_past_a_torn_end_count_no_loss(unpacked: GoldenStore, tmp_path: Path) -> None:
    """What a kill leaves at the end was never whole: no topic stands among those that have lost messages."""
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    last = records_of(store)[-1]
    with (store / last.path).open("r+b") as log:
        log.seek(last.fields["message_size"][0])
        log.write(bytes(last.size))
    outcome = verify(store)
    assert "consumequeue.ahead" in codes_of(outcome)
    assert not outcome.lost
