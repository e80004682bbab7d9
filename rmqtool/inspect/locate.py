"""Find out what a path is: a store, or a location in one with the files that belong to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqtool.base.errors import UnreadableError, UnsupportedError, WrongKindError
from rmqtool.base.files import InputFile, list_directory, unreadable
from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.base.paths import absolute, entry_path, has_directory
from rmqtool.formats import checkpoint, consume_queue, dledger, index_file, timer_wheel
from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from rmqtool.formats.file_name import is_index_name, start_offset_of
from rmqtool.formats.layout import decode_units, integer_at
from rmqtool.formats.message import BLANK_SIZE, MAGIC_CODE_BLANK, MAGIC_CODE_V1, MAGIC_CODE_V2, PREFIX_DTYPE
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan.block import MAX_MESSAGE_SIZE
from rmqtool.store.paths import (
    COMPACTION,
    COMPACTION_LOG,
    COMPACTION_QUEUE,
    QUEUE_KINDS,
    Kind,
    Named,
    is_config_name,
    named_by,
)
from rmqtool.store.store import (
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    DLEDGER_DATA,
    DLEDGER_INDEX,
    Store,
    is_rocksdb_directory,
    open_store,
    relative_to,
)
from rmqtool.store.tiered import SEGMENT_KINDS, list_segments

_HEAD = 4096
_FIRST_UNITS = 4  # of a consume queue: a batch queue's first unit begins as one of these
_FIRST_TIME, _LAST_TIME = 946_684_800_000, 4_102_444_800_000  # the years 2000 to 2100, epoch ms
_MAGIC_CODES = (MAGIC_CODE_V1, MAGIC_CODE_V2, MAGIC_CODE_BLANK)
_NAMES: dict[Kind, str] = {
    "commitlog": "a commit log file",
    "dledger": "a file of DLedger entries",
    "config": "JSON",
    "timerlog": "a timer log file",
    "lock": "a lock file",
    "checkpoint": "a checkpoint",
    "timerwheel": "a timer wheel",
    "index": "an index file",
    "dledger-index": "an index of DLedger entries",
    "batchconsumequeue": "a batch consume queue file",
    "consumequeue": "a consume queue file",
    "consumequeue-ext": "a consume queue ext file",
}
_ALIKE: dict[Kind, Kind] = {"compaction": "commitlog", "compaction-queue": "batchconsumequeue"}


def detect_kind(path: Path) -> Kind | None:
    """The kind of which the first bytes are typical; None when they are of no kind."""
    with InputFile(path) as file:
        head, size = file.read(0, _HEAD), file.size
    return next((kind for kind, matches in (*_SURE.items(), *_LIKELY.items()) if matches(head, size)), None)


def name_of(kind: Kind) -> str:
    """A kind in words, for a sentence."""
    return _NAMES.get(kind, kind)


def require_kind(path: Path, kind: Kind) -> None:
    """Raise WrongKindError when the first bytes show for sure that a file is of another kind."""
    with InputFile(path) as file:
        head, size = file.read(0, _HEAD), file.size
    detected = next((kind_of_bytes for kind_of_bytes, matches in _SURE.items() if matches(head, size)), None)
    if detected and detected != _ALIKE.get(kind, kind):
        raise WrongKindError(
            f"this looks like {name_of(detected)}, not {name_of(kind)}", file=path, hint=as_hint(detected)
        )


def other_kind_of(path: Path, kind: Kind) -> Kind | None:
    """Another kind of which the first bytes are typical, where they are not typical of `kind`; else None.

    No proof: a file of `kind` may begin with damage that looks like something else.
    """
    if kind == "timercheck":
        return detect_kind(path)  # its own numbers may be any
    own = {**_SURE, **_LIKELY}.get(_ALIKE.get(kind, kind))
    with InputFile(path) as file:
        head, size = file.read(0, _HEAD), file.size
    return None if own is None or own(head, size) else detect_kind(path)


def as_hint(kind: Kind) -> str:
    """The option that reads a file as the kind that was detected."""
    return f"--as {kind} reads it as {name_of(kind)}"


def _is_time(value: int) -> bool:
    return _FIRST_TIME <= value <= _LAST_TIME


def _commit_log(head: bytes, size: int) -> bool:
    return len(head) >= BLANK_SIZE and integer_at(PREFIX_DTYPE, "magic_code", head) in _MAGIC_CODES


def _dledger(head: bytes, size: int) -> bool:
    if integer_at(dledger.ENTRY_DTYPE, "magic", head) != dledger.MAGIC_ENTRY:
        return False
    return integer_at(PREFIX_DTYPE, "magic_code", head, dledger.ENTRY_HEADER_SIZE) in _MAGIC_CODES


def _json(head: bytes, size: int) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and not any(head[:64].count(byte) for byte in (0, 1, 2))


def _timer_log(head: bytes, size: int) -> bool:
    units = decode_units(timer_wheel.UNIT_DTYPE, head[: timer_wheel.UNIT_SIZE])
    return bool(len(units) and timer_wheel.is_written(units)[0] and _is_time(int(units["write_timestamp"][0])))


def _checkpoint(head: bytes, size: int) -> bool:
    return size == checkpoint.CHECKPOINT_FILE_SIZE and all(
        _is_time(integer_at(checkpoint.CHECKPOINT_DTYPE, name, head))
        for name in ("physic_message_timestamp", "logics_message_timestamp")
    )


def _index(head: bytes, size: int) -> bool:
    if len(head) < index_file.HEADER_SIZE or size <= index_file.file_size(1, 1):
        return False
    header = np.frombuffer(head, index_file.HEADER_DTYPE, count=1)[0]
    times = _is_time(int(header["begin_timestamp"])) and _is_time(int(header["end_timestamp"]))
    return times and 0 < header["hash_slot_count"] <= header["index_count"]


def _dledger_index(head: bytes, size: int) -> bool:
    units = decode_units(dledger.INDEX_DTYPE, head[: 2 * dledger.INDEX_UNIT_SIZE])
    return bool(len(units) and dledger.is_written(units)[0] and units["position"][0] >= 0 and units["term"][0] >= 0)


def _batch_queue(head: bytes, size: int) -> bool:
    units = decode_units(consume_queue.BATCH_UNIT_DTYPE, head[: consume_queue.BATCH_UNIT_SIZE])
    return bool(len(units) and consume_queue.is_batch_written(units)[0] and _is_time(int(units["store_timestamp"][0])))


def _queue(head: bytes, size: int) -> bool:
    units = decode_units(consume_queue.UNIT_DTYPE, head)[:_FIRST_UNITS]
    if size % consume_queue.UNIT_SIZE or not len(units) or _index(head, size):
        return False
    written = consume_queue.is_written(units) & (units["message_size"] <= MAX_MESSAGE_SIZE)
    written |= consume_queue.is_pre_blank(units)
    unused = (units["physical_offset"] == 0) & (units["message_size"] == 0)
    return bool(written[0] and (written | unused).all())


def _ext(head: bytes, size: int) -> bool:
    first = next(consume_queue.decode_ext_units(head), None)
    return first is not None and first.is_sound and _is_time(first.store_timestamp)


_SURE: dict[Kind, Callable[[bytes, int], bool]] = {
    "commitlog": _commit_log,
    "dledger": _dledger,
    "config": _json,
    "timerlog": _timer_log,
    "lock": lambda head, _: head == b"lock",
}
_LIKELY: dict[Kind, Callable[[bytes, int], bool]] = {
    "checkpoint": _checkpoint,
    "timerwheel": lambda _, size: size == timer_wheel.WHEEL_SIZE,
    "index": _index,
    "dledger-index": _dledger_index,
    "batchconsumequeue": _batch_queue,
    "consumequeue-ext": _ext,
    "consumequeue": _queue,
}


_FOLDER_OF = {kind: folder for folder, kind in QUEUE_KINDS.items()}


@dataclass(frozen=True)
class FileGroup:
    """The files of one queue in order, with its topic and queue id; for a kind without queues all files."""

    files: tuple[MappedFile, ...]
    topic: str | None = None
    queue_id: int | None = None


@dataclass(frozen=True)
class Location:
    """A file or directory in the store at `root`, of one kind; a file that was copied elsewhere stands alone."""

    kind: Kind
    root: Path
    path: Path
    groups: tuple[FileGroup, ...]

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The files of all groups."""
        return tuple(file for group in self.groups for file in group.files)

    def relative(self, path: Path) -> str:
        """`path` as output shows it: relative to the store, absolute when outside."""
        return relative_to(path if path.is_absolute() else absolute(path), self.root)


def locate(path: Path, kind: Kind | None, conf: BrokerConf) -> Store | Location:
    """Find out what `path` is; `kind` overrides what its name says. Raises RmqtoolError."""
    try:
        is_directory, exists = path.is_dir(), path.exists()
    except OSError as error:
        raise unreadable(path, None, error) from error
    if not exists:
        raise UnreadableError("no such file or directory", file=path)
    if kind == "rocksdb" or (kind is None and is_rocksdb_directory(path)):
        return _database(path, is_directory=is_directory)
    if kind is None and (segments := _segments(path, is_directory=is_directory)):
        return segments
    named = _named(path, is_directory=is_directory, conf=conf)
    if kind == "store" or (kind is None and named is None and is_directory):
        if not is_directory:
            raise WrongKindError("a file where a store directory should be", file=path)
        if kind is None:
            _refuse_folder(path)
        return open_store(path, conf)
    if kind is not None and (named is None or named.kind != kind):
        named = Named(kind, _own_name(path if is_directory else path.parent))
    if named is None:
        detected = detect_kind(path)
        resemblance = f"; it looks like {name_of(detected)}" if detected else ""
        hint = as_hint(detected) if detected else "use --as KIND, such as --as commitlog"
        raise UnsupportedError(f"cannot tell what this file is{resemblance}", file=path, hint=hint)
    return _location(path, named, is_directory=is_directory, conf=conf)


_OF_TIER: dict[str, Kind] = {"COMMIT_LOG": "commitlog", "CONSUME_QUEUE": "consumequeue"}


def _segments(path: Path, *, is_directory: bool) -> Location | None:
    """The segments of a queue's flat file in a tier, or one of them; None elsewhere (``TOPIC/QUEUE/COMMIT_LOG``)."""
    folder = _own_name(path if is_directory else path.parent)
    queue = absolute(folder).parent
    if folder.name not in SEGMENT_KINDS or not (queue.name.isascii() and queue.name.isdecimal()):
        return None
    files = tuple(file for file in list_segments(folder).files if is_directory or file.path.name == path.name)
    if not files:
        return None
    if folder.name not in _OF_TIER:
        raise UnsupportedError("segments of the index of a tier", file=path, hint="query --key looks up keys in them")
    group = FileGroup(files, queue.parent.name, int(queue.name))
    return Location(_OF_TIER[folder.name], queue.parent.parent, path, (group,))


def _database(path: Path, *, is_directory: bool) -> Location:
    """A RocksDB database, which is of the store that it, or `config/`, stands in."""
    if not is_directory:
        raise WrongKindError("a file where the directory of a RocksDB database should be", file=path)
    directory = _own_name(path)
    root = directory.parent.parent if directory.parent.name == CONFIG else directory.parent
    files = [entry for entry in list_directory(path) if entry.is_file()]
    return Location("rocksdb", root, path, (FileGroup(tuple(_any_file(entry_path(entry)) for entry in files)),))


def _refuse_folder(path: Path) -> None:
    """Raise UnsupportedError for a directory that is part of a store, but that no command shows."""
    if path.name == COMPACTION and not has_directory(path / CONSUME_QUEUE):
        hint = f"list them separately: {path / COMPACTION_LOG}, {path / COMPACTION_QUEUE}"
        raise UnsupportedError("logs and queues of compactions", file=path, hint=hint)


def _named(path: Path, *, is_directory: bool, conf: BrokerConf) -> Named | None:
    """What the path's names say; a folder with a commit log in it is a store, whatever it is called."""
    if is_directory and has_directory(path / COMMIT_LOG):
        return None
    if is_directory and path.resolve() in _configured(conf):
        return Named("commitlog", _root_of(_own_name(path)))
    return named_by(path, is_directory=is_directory)


def _location(path: Path, named: Named, *, is_directory: bool, conf: BrokerConf) -> Location:
    if named.kind == "commitlog":
        if is_directory:
            return _whole_log(path, conf)
        directory = _own_name(path.parent)
        file = _one_file(directory / path.name)
        return Location("commitlog", _root_of(directory), path, (FileGroup((file,)),))
    if is_directory:
        groups = _groups_in(path, named)
        may_be_empty = named_by(path, is_directory=True) == named  # a folder whose own name says its kind
        if not may_be_empty and not any(group.files for group in groups):
            raise WrongKindError(f"nothing of {name_of(named.kind)} is in this directory", file=path)
        return Location(named.kind, named.root, path, groups)
    file = _any_file(path).with_header(_header_size(named))
    return Location(named.kind, named.root, path, (FileGroup((file,), named.topic, named.queue_id),))


def _header_size(named: Named) -> int:
    """What stands before each record in files of this kind, bytes."""
    return ENTRY_HEADER_SIZE if named.kind == "dledger" else 0


def _groups_in(path: Path, named: Named) -> tuple[FileGroup, ...]:
    if named.kind in _FOLDER_OF:
        return _queue_groups(path, named)
    if named.kind in ("dledger", "dledger-index"):
        below = path / (DLEDGER_DATA if named.kind == "dledger" else DLEDGER_INDEX)
        listed = list_mapped_files(below if below.is_dir() else path, header_size=_header_size(named))
        return (FileGroup(listed.files),)
    if named.kind == "timerlog":
        return (FileGroup(list_mapped_files(path).files),)
    wanted = {"index": is_index_name, "config": is_config_name}.get(named.kind)
    if wanted is None:
        raise WrongKindError(f"a directory where {name_of(named.kind)} should be", file=path)
    entries = [entry for entry in list_directory(path) if wanted(entry.name) and entry.is_file()]
    return (FileGroup(tuple(_any_file(entry_path(entry)) for entry in entries)),)


def _queue_groups(path: Path, named: Named) -> tuple[FileGroup, ...]:
    """The queues in a folder: of all topics, of one topic, or a queue itself."""
    if named.queue_id is not None or list_mapped_files(path).files:
        return (FileGroup(list_mapped_files(path).files, named.topic, named.queue_id),)
    topics = [(named.topic, path)] if named.topic is not None else _folders(path)
    groups = []
    for topic, folder in topics:
        queues = [(int(name), queue) for name, queue in _folders(folder) if name.isdecimal() and name.isascii()]
        groups += [FileGroup(list_mapped_files(queue).files, topic, queue_id) for queue_id, queue in sorted(queues)]
    return tuple(groups)


def _folders(path: Path) -> list[tuple[str, Path]]:
    return [(entry.name, entry_path(entry)) for entry in list_directory(path) if entry.is_dir()]


def _any_file(path: Path) -> MappedFile:
    """A file with its size; its start offset is that of its name, or 0."""
    with InputFile(path) as file:
        return MappedFile(path, start_offset_of(path.name) or 0, file.size)


def _configured(conf: BrokerConf) -> list[Path]:
    return [Path(path).resolve() for path in conf.commit_log_paths]


def _whole_log(directory: Path, conf: BrokerConf) -> Location:
    """The whole log: the files of all directories that broker.conf names, when this is one of them."""
    own, configured = _own_name(directory), _configured(conf)
    listed = list_mapped_files(*(configured if own.resolve() in configured else [own]))
    if not listed.files and (listed.strays or own.name != COMMIT_LOG):
        raise WrongKindError("no commit log file (a name of 20 digits) is in this directory", file=directory)
    return Location("commitlog", _root_of(own), directory, (FileGroup(listed.files),))


def _own_name(directory: Path) -> Path:
    """The directory under the name ``commitlog``, where it or its link has that name; else as it is."""
    resolved = directory.resolve()
    return resolved if directory.name != COMMIT_LOG and resolved.name == COMMIT_LOG else directory


def _root_of(directory: Path) -> Path:
    """The store that a directory of commit log files belongs to; itself when it was copied elsewhere."""
    own = absolute(directory)
    return own.parent if directory.name == COMMIT_LOG else own


def _one_file(path: Path) -> MappedFile:
    with InputFile(path) as file:
        start_offset = start_offset_of(path.name)
        if start_offset is None:
            start_offset = _offset_of_first_record(file)
        return MappedFile(path, start_offset, file.size)


def _offset_of_first_record(file: InputFile) -> int:
    """The physical offset that the first record stores, for a file that has lost its name."""
    head = np.frombuffer(file.read(0, PREFIX_DTYPE.itemsize).ljust(PREFIX_DTYPE.itemsize, b"\0"), PREFIX_DTYPE)[0]
    if head["magic_code"] not in (MAGIC_CODE_V1, MAGIC_CODE_V2) or head["physical_offset"] < 0:
        raise WrongKindError(
            "neither the name nor the first record shows where in the commit log this file belongs",
            file=file.path,
            offset=0,
            hint="rename a copy to its start offset, in 20 digits",
        )
    return int(head["physical_offset"])
