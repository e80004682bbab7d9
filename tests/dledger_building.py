"""DLedger logs for tests: entries of one message each, laid out in files as a node of a group does."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, TypeVar

from rmqtool.formats.dledger import (
    BLANK_SIZE,
    ENTRY_HEADER_SIZE,
    INDEX_UNIT_SIZE,
    MAGIC_BLANK,
    MAGIC_ENTRY,
    DLedgerBlank,
    DLedgerEntryHeader,
    DLedgerIndexUnit,
)
from rmqtool.formats.file_name import file_name
from rmqtool.formats.layout import build, parse, position_of
from rmqtool.formats.message import PREFIX_DTYPE
from tests.building import START_TIME, message
from tests.verify.small_store import StoreBuilder

NODE = "dledger-n0"
_Log = TypeVar("_Log", bound=StoreBuilder)
_OFFSET_AT = position_of(PREFIX_DTYPE, "physical_offset")


class EntryBuilder(StoreBuilder):
    """A log of entries; `offsets` are those of the messages in them. Set `term` and `index` to go on with others."""

    term = 1
    index = 0

    def add(self, **fields: Any) -> int:
        """Append an entry with a message; return the message's physical offset."""
        record = bytearray(message(**fields))
        size = ENTRY_HEADER_SIZE + len(record)
        if len(self.files[-1]) + size + BLANK_SIZE > self.file_size:
            self.roll()
        header = {
            "magic": MAGIC_ENTRY, "size": size, "index": self.index, "term": self.term, "position": self.end,
            "channel": 0, "chain_crc": 0, "body_crc": 0, "body_size": len(record),
        }  # fmt: skip
        self.files[-1] += build(DLedgerEntryHeader, header)
        self.index += 1
        self.offsets.append(self.end)
        struct.pack_into(">q", record, _OFFSET_AT, self.end)
        self.files[-1] += record
        return self.offsets[-1]

    def roll(self) -> None:
        """End the last file with a blank and begin the next."""
        rest = self.file_size - len(self.files[-1])
        self.files[-1] += build(DLedgerBlank, {"magic": MAGIC_BLANK, "size": rest}).ljust(rest, b"\0")
        self.files.append(bytearray())

    def entry_index(self) -> bytes:
        """The units of all entries by their Raft index, the first from 0 on."""
        data = bytearray(INDEX_UNIT_SIZE * self.index)
        for number, image in enumerate(self.files):
            position = 0
            while position + ENTRY_HEADER_SIZE < len(image):
                header = parse(DLedgerEntryHeader, bytes(image[position : position + ENTRY_HEADER_SIZE]))
                if header.magic != MAGIC_ENTRY:
                    break
                unit = {"magic": MAGIC_ENTRY, "position": self.start_offset + number * self.file_size + position}
                unit |= {name: header[name] for name in ("size", "index", "term")}
                data[header.index * INDEX_UNIT_SIZE : (header.index + 1) * INDEX_UNIT_SIZE] = build(
                    DLedgerIndexUnit, unit
                )
                position += header.size
        return bytes(data)

    def write(self, store: Path, committed: int | None = None) -> Path:
        """Write the log of a node into `store`, committed as far as the checkpoint says, by default all of it."""
        data = store / NODE / "data"
        data.mkdir(parents=True, exist_ok=True)
        (store / NODE / "index").mkdir(exist_ok=True)
        (store / NODE / "index" / file_name(0)).write_bytes(self.entry_index())
        for old in data.iterdir():
            old.unlink()
        for start, image in self.images().items():
            (data / file_name(start)).write_bytes(image)
        committed = self.index - 1 if committed is None else committed
        (store / NODE / "checkpoint").write_text(f"committedIndex={committed}\nendIndex={self.index - 1}\n")
        return store


def entry_log(records: int = 40, **options: Any) -> EntryBuilder:
    """Messages of two queues, of differing sizes, each with a key."""
    return put_entries(EntryBuilder(**{"file_size": 4096, **options}), records)


def put_entries(log: _Log, records: int, body: str = "message") -> _Log:
    """Append as many messages to a log; return it."""
    first = len(log.offsets)
    for number in range(first, first + records):
        log.put("orders", number % 2, body=f"{body} {number} ".encode() * (1 + number * 7 % 9),
                store_timestamp=START_TIME + 400 * number, properties={"UNIQ_KEY": f"7F{number:030X}"})  # fmt: skip
    return log
