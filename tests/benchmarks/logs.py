"""Synthetic commit logs for speed measurements: valid as a broker's, made in seconds, kept for the next run."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from rmqtool.formats.checkpoint import CHECKPOINT_DTYPE, CHECKPOINT_FILE_SIZE
from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.formats.message import BLANK_SIZE, body_crc, build_blank, build_message
from rmqtool.formats.properties import encode_properties, tags_code
from tests.benchmarks.messages import (
    BORN_HOST,
    KINDS,
    START_TIME,
    STORE_HOST,
    TAGS,
    TOPICS,
    Kind,
    Position,
    draw_messages,
    encode,
)

GENERATOR = 2
"""Raised whenever other bytes come out for the same parameters, so that kept logs are made again."""

CHUNK_BYTES = 8 << 20
CONSUME_QUEUE_FILE_SIZE = 6_000_000


@dataclass(frozen=True)
class LogParameters:
    """All that decides the bytes of a log; sizes in bytes."""

    kind: str
    size: int
    file_size: int
    seed: int
    generator: int = GENERATOR


def make_log(directory: Path, kind: str, size: int = 1 << 30, file_size: int = 1 << 30, seed: int = 5) -> Path:
    """Write a store whose commit log, of one of KINDS, ends at or just before `size`; keep one already there.

    Each file has `file_size` bytes; a full one ends with a blank, what is left of the last one is zeros.
    """
    parameters = LogParameters(kind, size, file_size, seed)
    if _is_made(directory, parameters):
        return directory
    _note_of(directory).unlink(missing_ok=True)
    folder = directory / "commitlog"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    count = _write_files(folder, parameters)
    _note_of(directory).write_text(json.dumps({**asdict(parameters), "messages": count}) + "\n")
    return directory


def message_count(directory: Path) -> int:
    """Return the number of messages that `make_log` wrote into `directory`."""
    return int(json.loads(_note_of(directory).read_text())["messages"])


def log_files(directory: Path) -> list[Path]:
    """List the files of a store's commit log, in order."""
    return sorted((directory / "commitlog").iterdir())


def make_one_message_store(directory: Path, file_size: int = 1 << 30) -> Path:
    """Write a store of one message, its consume queue unit and a checkpoint; the files are sparse, as a broker's."""
    record = build_message(
        body_crc=body_crc(b"hello"),
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp=START_TIME,
        born_host=BORN_HOST,
        store_timestamp=START_TIME + 1,
        store_host=STORE_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"hello",
        topic=TOPICS[0].encode(),
        properties=encode_properties({"WAIT": "true", "TAGS": TAGS[0]}),
    )
    unit = build_unit(0, len(record), tags_code(TAGS[0]))
    checkpoint = np.zeros(1, CHECKPOINT_DTYPE)
    checkpoint["physic_message_timestamp"] = checkpoint["logics_message_timestamp"] = START_TIME + 1
    _write_sparse(directory / "commitlog" / file_name(0), record, file_size)
    _write_sparse(directory / "consumequeue" / TOPICS[0] / "0" / file_name(0), unit, CONSUME_QUEUE_FILE_SIZE)
    _write_sparse(directory / "checkpoint", checkpoint.tobytes(), CHECKPOINT_FILE_SIZE)
    return directory


def _note_of(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.json")


def _is_made(directory: Path, parameters: LogParameters) -> bool:
    try:
        note = json.loads(_note_of(directory).read_text())
        sizes = [file.stat().st_size for file in log_files(directory)]
    except (OSError, ValueError):
        return False
    wanted = [parameters.file_size] * math.ceil(parameters.size / parameters.file_size)
    return asdict(parameters).items() <= note.items() and sizes == wanted


def _write_sparse(path: Path, data: bytes, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.truncate(size)


def _write_files(folder: Path, parameters: LogParameters) -> int:
    """Write all files; return the number of messages."""
    rng = np.random.default_rng(parameters.seed)
    position = Position(0, 0, np.zeros(KINDS[parameters.kind].queues, np.int64))
    for start in range(0, parameters.size, parameters.file_size):
        position.physical_offset = start
        end = start + parameters.file_size
        with (folder / file_name(start)).open("wb") as file:
            _append_messages(file, rng, KINDS[parameters.kind], position, min(end, parameters.size))
            if end <= parameters.size:
                file.write(build_blank(end - position.physical_offset))
            file.truncate(parameters.file_size)
    return position.number


def _append_messages(file: BinaryIO, rng: np.random.Generator, kind: Kind, position: Position, end: int) -> None:
    """Append messages until the next one and a blank would not fit before `end`; chunks stay in the cache."""
    chunk = CHUNK_BYTES // (sum(kind.body_sizes) // 2 + 250)
    fitting = chunk
    while fitting == chunk:
        messages = draw_messages(rng, chunk, kind, position.number)
        ends = position.physical_offset + messages.sizes().cumsum()
        fitting = int(np.searchsorted(ends, end - BLANK_SIZE, side="right"))
        if fitting:
            file.write(encode(rng, messages.first(fitting), position))
