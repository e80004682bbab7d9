"""A log whose messages are all in a tier: each queue has a log of its own there, as a broker uploads them."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.formats.layout import position_of
from rmqtool.formats.message import PREFIX_DTYPE
from rmqtool.formats.tiered import cluster_directory, segment_name
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan.filters import Filters
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.message_reader import SplitReader, make_query
from rmqtool.store.other_logs import other_sources
from rmqtool.store.splits import Source, find_source, split_source
from rmqtool.store.store import NamedStore, open_store
from rmqtool.store.tiered import METADATA, built_units, with_tier

_PLACE = position_of(PREFIX_DTYPE, "physical_offset")
_Queue = tuple[bytes, int]


def read_log(names: Sequence[str], store: Path, _output: Path) -> int:
    """Read all messages of the commit log, with some columns, as an export does; count them."""
    return _read([find_source(NamedStore("local", open_store(store)))], names)


def read_tier(names: Sequence[str], store: Path, _output: Path) -> int:
    """Read them from the tier, which the first run makes."""
    tiered = make_tier(store)
    conf = with_tier(BrokerConf(), tiered / "tier")
    return _read(other_sources(NamedStore("tiered", open_store(tiered, conf)), Filters()), names)


def _read(sources: Sequence[Source], names: Sequence[str]) -> int:
    query, count = make_query(names, "decompressed", Filters()), 0
    for source in sources:
        for split in split_source(source):
            reader = SplitReader(split, query)
            count += sum(reader.to_messages(event).num_rows for event in reader.events() if hasattr(event, "num_rows"))
    return count


def make_tier(store: Path) -> Path:
    """A store beside the one that `make_log` wrote, without a message of its own, and its tier; kept."""
    directory = store.with_name(f"{store.name}-tiered")
    made, wanted = directory.with_name(f"{directory.name}.json"), store.with_name(f"{store.name}.json")
    if directory.exists() and made.exists() and made.read_bytes() == wanted.read_bytes():
        return directory
    made.unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "config").mkdir(parents=True)
    (directory / "commitlog").mkdir()
    (directory / METADATA).write_text("{}")
    logs: defaultdict[_Queue, bytearray] = defaultdict(bytearray)
    ends: defaultdict[_Queue, int] = defaultdict(int)
    for event in scan_files(list_mapped_files(store / "commitlog").files):
        if isinstance(event, RecordRun):
            _upload(event, directory / "tier", logs, ends)
    for queue in logs:
        _write(directory / "tier", queue, "COMMIT_LOG", logs[queue])
    shutil.copyfile(wanted, made)
    return directory


def _upload(run: RecordRun, tier: Path, logs: dict[_Queue, bytearray], ends: dict[_Queue, int]) -> None:
    """Append the records of a run to the logs of their queues, and their units."""
    topics = run.block.slices(run.topic_positions, run.topic_sizes).to_pylist()
    queue_ids = run.headers.field("queue_id").tolist()
    _, units = built_units(run, np.arange(len(run)))
    units = units.copy()
    of_queue: defaultdict[_Queue, list[int]] = defaultdict(list)
    records = zip(run.positions.tolist(), run.message_sizes.tolist(), topics, queue_ids, strict=True)
    for row, (position, size, topic, queue_id) in enumerate(records):
        queue = (topic, queue_id)
        log, place = logs[queue], ends[queue]
        at = len(log)
        log += run.block.view[position : position + size]
        log[at + _PLACE : at + _PLACE + 8] = place.to_bytes(8, "big")
        units["physical_offset"][row], ends[queue] = place, place + size
        of_queue[queue].append(row)
        if len(log) >= _BUFFERED:
            _write(tier, queue, "COMMIT_LOG", log)
            log.clear()
    for queue, rows in of_queue.items():
        _write(tier, queue, "CONSUME_QUEUE", units[rows].tobytes())


_BUFFERED = 1 << 20


def _write(tier: Path, queue: _Queue, kind: str, data: bytes | bytearray) -> None:
    folder = tier / cluster_directory("lab") / "broker-a" / queue[0].decode() / str(queue[1]) / kind
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / segment_name(0)).open("ab") as file:
        file.write(data)
