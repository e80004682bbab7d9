"""Segments of tiered storage: their names, the coda of older ones, and the index (`IndexStoreFile`, `TieredStoreUtil`).

The commit log of a queue holds records as the store's commit log does, with their offset in this log; its consume queue
has units of 20 bytes.
"""

from __future__ import annotations

import re
from hashlib import md5

from construct import Int32sb, Int64sb, Struct

from .file_name import MAX_OFFSET, file_name
from .layout import dtype_of

_HASH_DIGITS = 8
_NAME = re.compile(r"([0-9a-f]{8})([0-9]{20})", re.ASCII)

TieredCoda = Struct(
    "size" / Int32sb * "16",
    "magic" / Int32sb * "CBD43194",
    "max_store_timestamp" / Int64sb * "greatest store time of the segment, epoch ms",
)
CODA_DTYPE = dtype_of(TieredCoda)
CODA_SIZE = CODA_DTYPE.itemsize  # MessageBufferUtil.CODA_SIZE, 16; up to 5.2.0
CODA_MAGIC = -0x342BCE6C  # TieredCommitLog.BLANK_MAGIC_CODE, CBD43194

TieredIndexHeader = Struct(
    "magic" / Int32sb * "BCC50285 in a segment (END_MAGIC_CODE), BCC50289 while it is written",
    "begin_timestamp" / Int64sb * "when the index was begun, epoch ms",
    "end_timestamp" / Int64sb * "greatest store time of its messages, epoch ms; 0 without one",
    "slots" / Int32sb * "slots that are used",
    "items" / Int32sb * "items",
)
INDEX_HEADER_DTYPE = dtype_of(TieredIndexHeader)
INDEX_HEADER_SIZE = INDEX_HEADER_DTYPE.itemsize  # IndexStoreFile.INDEX_HEADER_SIZE, 28
TieredIndexSlot = Struct(
    "position" / Int32sb * "where its items begin, bytes in the segment",
    "length" / Int32sb * "bytes of its items",
)
INDEX_SLOT_DTYPE = dtype_of(TieredIndexSlot)
TieredIndexItem = Struct(
    "hash" / Int32sb * "hash of topic#key: its absolute value up to 5.5.0, without its sign bit since 5.5.1",
    "topic_id" / Int32sb * "number of the topic in the metadata",
    "queue_id" / Int32sb * "queue id",
    "physical_offset" / Int64sb * "offset in the queue's tiered commit log, bytes",
    "message_size" / Int32sb * "stored size of the message, bytes",
    "seconds" / Int32sb * "store time after the begin, seconds",
)
INDEX_ITEM_DTYPE = dtype_of(TieredIndexItem)
INDEX_MAGIC = -0x433AFD7B  # IndexStoreFile.END_MAGIC_CODE, BCC50285

WrittenIndexSlot = Struct(
    "item" / Int32sb * "number of the newest item, from 1; 0 without one",
    "unused" / Int32sb * "0",
)
WRITTEN_SLOT_DTYPE = dtype_of(WrittenIndexSlot)
WrittenIndexItem = Struct(
    *TieredIndexItem.subcons,
    "previous" / Int32sb * "number of the item before it in its slot; 0 without one",
)
WRITTEN_ITEM_DTYPE = dtype_of(WrittenIndexItem)
WRITTEN_MAGIC = INDEX_MAGIC + 4  # IndexStoreFile.BEGIN_MAGIC_CODE, BCC50289


def hashed(text: str) -> str:
    """The first digits of the MD5 of a text, before the names of clusters and segments (`#getHash`)."""
    return md5(text.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]


def segment_name(base: int) -> str:
    """Name of the segment whose first byte has offset `base` in its flat file, bytes (`#offset2FileName`)."""
    return hashed(str(base)) + file_name(base)


def base_of(name: str) -> int | None:
    """Where a segment begins, bytes; None for a name of something else, or whose digits are not those of the offset."""
    match = _NAME.fullmatch(name)
    base = int(match[2]) if match else MAX_OFFSET + 1
    return base if match and base <= MAX_OFFSET and match[1] == hashed(str(base)) else None


def cluster_directory(cluster: str) -> str:
    """The directory of a cluster."""
    return f"{hashed(cluster)}_{cluster}"
