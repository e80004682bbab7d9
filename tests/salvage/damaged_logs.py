"""Logs whose records all prove themselves, damage to their files, and what a broker reads of a new log."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from struct import unpack_from

from rmqtool.formats.message import BLANK_SIZE, MAGIC_CODE_BLANK
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.salvage.inputs import list_inputs
from rmqtool.salvage.plan import SalvagePlan, make_plan
from rmqtool.salvage.write_log import write_log
from rmqtool.store.store import open_store
from tests.building import LOG, START_TIME
from tests.verify.small_store import FILE_SIZE, StoreBuilder

LOST = b"%RMQTOOL%LOST"
CONF = BrokerConf({"mappedFileSizeCommitLog": str(FILE_SIZE)})
_TOPIC_AT = 88 + 1  # after a header with IPv4 hosts, and an empty body

Records = dict[int, bytes]
"""Records by physical offset."""


def checked_log(records: int = 40, first: int = 0, master: str = "1", **options: int) -> StoreBuilder:
    """Records that hold their own CRC, from number `first` on: any byte that is changed shows."""
    builder = StoreBuilder(**{"file_size": FILE_SIZE, **options})
    for number in range(first, first + records):
        body = f"message {number} of master {master} ".encode() * (1 + number * 7 % 9)
        builder.put("orders", number % 2, checked=True, body=body, store_timestamp=START_TIME + 400 * number,
                    queue_offset=number // 2, properties={"UNIQ_KEY": f"{master}{number:012X}"})  # fmt: skip
    return builder


def records_of(builder: StoreBuilder) -> Records:
    """All records of a log."""
    found = {}
    for offset in builder.offsets:
        data = builder.files[(offset - builder.start_offset) // builder.file_size]
        position = offset % builder.file_size
        found[offset] = bytes(data[position : position + unpack_from(">i", data, position)[0]])
    return found


def whole_in(records: Records, sources: Iterable[bytes]) -> Records:
    """The records of which all bytes are somewhere in one of the sources."""
    data = list(sources)
    return {offset: record for offset, record in records.items() if any(record in each for each in data)}


def plan_of(
    *stores: Path, raw: Iterable[Path] = (), conf: BrokerConf = CONF, topics: Iterable[str] = ("orders",)
) -> SalvagePlan:
    """Plan a salvage of messages of `topics`."""
    inputs = list_inputs([open_store(store) for store in stores], list(raw))
    return make_plan(inputs, conf, frozenset(topics))


def salvaged(
    new: Path, *stores: Path, raw: Iterable[Path] = (), conf: BrokerConf = CONF, topics: Iterable[str] = ("orders",)
) -> tuple[SalvagePlan, Records]:
    """Plan, write the new log into `new`, and read it as a broker does; the sources stay as they are."""
    plan = plan_of(*stores, raw=raw, conf=conf, topics=topics)
    write_log(plan, new)
    return plan, walked(new)


def walked(log: Path) -> Records:
    """What a broker reads from the first file on, from size to size; dummy records are left out.

    Asserts that each record is in its place, that files but the last end with a blank, and that none is missing.
    """
    paths = sorted(log.iterdir())
    found: Records = {}
    for path in paths:
        data, start = path.read_bytes(), int(path.name)
        assert len(data) == FILE_SIZE
        end = _walk(data, start, found)
        assert end == FILE_SIZE or (path == paths[-1] and not any(data[end:])), f"{path.name} ends at {end}"
    starts = [int(path.name) for path in paths]
    assert starts == list(range(starts[0], starts[-1] + 1, FILE_SIZE)) if starts else not found
    return found


def _walk(data: bytes, start: int, found: Records) -> int:
    position = 0
    while position + BLANK_SIZE <= len(data):
        size, magic_code = unpack_from(">ii", data, position)
        if magic_code == MAGIC_CODE_BLANK:
            assert size == len(data) - position
            return len(data)
        if size == 0:
            break
        assert unpack_from(">q", data, position + 28)[0] == start + position
        record = data[position : position + size]
        if not _is_inert(record):
            found[start + position] = record
        else:
            assert unpack_from(">q", record, 56)[0] > 0  # never 0: a file that begins so counts as empty
        position += size
    return position


def _is_inert(record: bytes) -> bool:
    body_size = unpack_from(">i", record, 84)[0]
    topic_size = record[88 + body_size]
    topic = record[89 + body_size : 89 + body_size + topic_size]
    return bool(topic) and LOST.startswith(topic) and not any(record[88 : 88 + body_size])


def images_of(store: Path) -> Mapping[str, bytes]:
    """The bytes of the log files of a store by name."""
    return {path.name: path.read_bytes() for path in sorted((store / LOG).iterdir())}


def damage(path: Path, chance: random.Random) -> None:
    """Flip, zero, overwrite, cut, swap, grow or take out."""
    data = bytearray(path.read_bytes())
    low = chance.randrange(len(data))
    high = min(len(data), low + chance.choice((1, 20, 500, 2000)))
    match chance.choice(("flip", "zero", "overwrite", "cut", "swap", "grow", "shrink", "page")):
        case "flip":
            data[low] ^= 1 << chance.randrange(8)
        case "zero":
            data[low:high] = bytes(high - low)
        case "overwrite":
            data[low:high] = chance.randbytes(high - low)
        case "cut":
            del data[low:]
        case "swap":
            data[low:], data[:low] = data[:low], data[low:]
        case "grow":
            data[low:low] = chance.randbytes(chance.choice((1, 20, 5000)))
        case "shrink":
            del data[low:high]
        case "page":
            low = low // 512 * 512
            data[low : low + 512] = bytes(512)
    path.write_bytes(data)
