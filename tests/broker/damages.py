"""Random damages to stores, the same for the same seed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.golden import stores

_LOG_SIZE = 65536
_PAGE = 4096

Damage = Callable[[random.Random, Path], str]


def log_files(root: Path) -> list[Path]:
    """The commit log files, in order."""
    return sorted(path for path in (root / "commitlog").iterdir() if path.is_file())


def queue_files(root: Path, part: str = "consumequeue") -> list[Path]:
    """All consume queue files, in order."""
    return sorted(path for path in (root / part).glob("*/*/*") if path.is_file())


def write_at(path: Path, position: int, data: bytes) -> None:
    """Overwrite bytes of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def _written(path: Path) -> int:
    return len(path.read_bytes().rstrip(b"\0"))


def _place(random_: random.Random, path: Path) -> int:
    return random_.randrange(max(1, _written(path)))


def _records(path: Path) -> list[int]:
    """Positions of what looks like a record's first byte."""
    data, found, at = path.read_bytes(), [], -1
    while (at := data.find(b"\xda\xa3\x20", at + 1)) >= 0:
        found.append(at - 4)
    return [position for position in found if position >= 0]


def flip_log(random_: random.Random, root: Path) -> str:
    """One bit of one byte."""
    path = random_.choice(log_files(root))
    position = _place(random_, path)
    data = path.read_bytes()
    write_at(path, position, bytes([data[position] ^ 1 << random_.randrange(8)]))
    return f"flip in {path.name} at {position}"


def flip_header(random_: random.Random, root: Path) -> str:
    """One bit of a record's fixed fields."""
    path = random_.choice(log_files(root))
    records = _records(path)
    if not records:
        return flip_log(random_, root)
    position = random_.choice(records) + random_.randrange(88)
    data = path.read_bytes()
    write_at(path, position, bytes([data[position] ^ 1 << random_.randrange(8)]))
    return f"flip in a header of {path.name} at {position}"


def zero_log_page(random_: random.Random, root: Path) -> str:
    """A page of zeros."""
    path = random_.choice(log_files(root))
    position = _place(random_, path) // _PAGE * _PAGE
    write_at(path, position, bytes(_PAGE))
    return f"zero page in {path.name} at {position}"


def zero_log_tail(random_: random.Random, root: Path) -> str:
    """Zeros from somewhere in a file to its end: a torn record, or a missing blank."""
    path = random_.choice(log_files(root)[-3:])
    position = _place(random_, path)
    write_at(path, position, bytes(path.stat().st_size - position))
    return f"zeros in {path.name} from {position}"


def cut_log_file(random_: random.Random, root: Path) -> str:
    """A file of another size."""
    path = random_.choice(log_files(root))
    size = random_.choice([0, 1, _PAGE, _LOG_SIZE - 1, _LOG_SIZE + 1])
    with path.open("r+b") as file:
        file.truncate(size)
    return f"{path.name} has {size} bytes"


def delete_log_file(random_: random.Random, root: Path) -> str:
    """A missing file: the first, the last or one between."""
    path = random_.choice(log_files(root))
    path.unlink()
    return f"{path.name} deleted"


def delete_log(random_: random.Random, root: Path) -> str:
    """No commit log file."""
    for path in log_files(root):
        path.unlink()
    return "no commit log file"


def swap_log_files(random_: random.Random, root: Path) -> str:
    """Two files with each other's names."""
    one, other = random_.sample(log_files(root), 2)
    spare = one.with_name("spare")
    one.rename(spare)
    other.rename(one)
    spare.rename(other)
    return f"{one.name} and {other.name} swapped"


def add_zero_log_files(random_: random.Random, root: Path) -> str:
    """Files allocated in advance."""
    last = log_files(root)[-1]
    count = random_.randrange(1, 4)
    for number in range(1, count + 1):
        last.with_name(f"{int(last.name) + number * _LOG_SIZE:020d}").write_bytes(bytes(_LOG_SIZE))
    return f"{count} empty files"


def stray_in_log(random_: random.Random, root: Path) -> str:
    """Something that is not a commit log file."""
    size = random_.choice([0, 10, _LOG_SIZE])
    name = random_.choice(["a.txt", "00000000000000000000.bak", "!"])
    (root / "commitlog" / name).write_bytes(bytes(size))
    return f"commitlog/{name} of {size} bytes"


def directory_in_log(random_: random.Random, root: Path) -> str:
    """A directory among the files."""
    name = random_.choice(["backup", "0"])
    (root / "commitlog" / name).mkdir()
    return f"commitlog/{name}/"


def bad_blank(random_: random.Random, root: Path) -> str:
    """The blank at the end of a file: zeroed, too long, too short."""
    path = random_.choice(log_files(root))
    at = path.read_bytes().rfind(b"\xcb\xd4\x31\x94") - 4
    if at < 0:
        return flip_header(random_, root)
    write_at(path, at, random_.choice([bytes(8), (_LOG_SIZE - at + 1).to_bytes(4, "big"), (8).to_bytes(4, "big")]))
    return f"blank in {path.name}"


def foreign_log_file(random_: random.Random, root: Path) -> str:
    """A file in the place of another."""
    one, other = random_.sample(log_files(root), 2)
    other.write_bytes(one.read_bytes())
    return f"{one.name} copied over {other.name}"


def log_file_off_grid(random_: random.Random, root: Path) -> str:
    """A file renamed to an offset at which none begins."""
    path = random_.choice(log_files(root))
    name = f"{int(path.name) + random_.choice([-100, 1, 4096, _LOG_SIZE // 2]):020d}"
    path.rename(path.with_name(name))
    return f"{path.name} renamed to {name}"


def gap_without_queues(random_: random.Random, root: Path) -> str:
    """A missing file in the middle, and no consume queues."""
    path = random_.choice(log_files(root)[1:-1])
    path.unlink()
    return f"{path.name} deleted, {delete_queues(random_, root)}"


def huge_size(random_: random.Random, root: Path) -> str:
    """A record that claims nearly 2 GiB."""
    path = random_.choice(log_files(root)[-3:])
    write_at(path, random_.choice(_records(path)), bytes.fromhex("7ffffff0"))
    return f"huge size in {path.name}"


def delete_queues(random_: random.Random, root: Path) -> str:
    """All consume queues."""
    for part in ("consumequeue", "batchconsumequeue"):
        shutil.rmtree(root / part, ignore_errors=True)
    return "no consume queues"


def delete_queue(random_: random.Random, root: Path) -> str:
    """One queue."""
    path = random_.choice(queue_files(root)).parent
    shutil.rmtree(path)
    return f"no queue {path.parent.name}/{path.name}"


def delete_queue_file(random_: random.Random, root: Path) -> str:
    """One file of a queue."""
    path = random_.choice(queue_files(root))
    path.unlink()
    return f"no file {path.relative_to(root)}"


def zero_unit(random_: random.Random, root: Path) -> str:
    """A unit of zeros."""
    path = random_.choice(queue_files(root))
    position = _place(random_, path) // 20 * 20
    write_at(path, position, bytes(20))
    return f"zero unit in {path.relative_to(root)} at {position}"


def zero_queue_tail(random_: random.Random, root: Path) -> str:
    """Zeros from a unit to the end of its file: a queue that is behind, or an empty last file."""
    path = random_.choice(queue_files(root))
    position = random_.choice([0, _place(random_, path) // 20 * 20])
    write_at(path, position, bytes(path.stat().st_size - position))
    return f"zeros in {path.relative_to(root)} from {position}"


def flip_queue(random_: random.Random, root: Path) -> str:
    """One bit of a unit."""
    path = random_.choice(queue_files(root))
    position = _place(random_, path)
    data = path.read_bytes()
    write_at(path, position, bytes([data[position] ^ 1 << random_.randrange(8)]))
    return f"flip in {path.relative_to(root)} at {position}"


def flip_batch_queue(random_: random.Random, root: Path) -> str:
    """One bit of a batch unit."""
    paths = queue_files(root, "batchconsumequeue")
    if not paths:
        return flip_queue(random_, root)
    path = random_.choice(paths)
    position = _place(random_, path)
    data = path.read_bytes()
    write_at(path, position, bytes([data[position] ^ 1 << random_.randrange(8)]))
    return f"flip in {path.relative_to(root)} at {position}"


def all_queues_behind(random_: random.Random, root: Path) -> str:
    """The last units of every queue are zeros."""
    count = random_.randrange(1, 6)
    for queue in {path.parent for path in queue_files(root)}:
        path = max(queue.iterdir())
        end = -(-_written(path) // 20) * 20
        start = max(0, end - 20 * count)
        write_at(path, start, bytes(end - start))
    return f"every queue {count} units behind"


def cut_queue_file(random_: random.Random, root: Path) -> str:
    """A consume queue file of another size."""
    path = random_.choice(queue_files(root))
    size = random_.choice([0, 20, 599])
    with path.open("r+b") as file:
        file.truncate(size)
    return f"{path.relative_to(root)} has {size} bytes"


def zero_queue_file(random_: random.Random, root: Path) -> str:
    """A further file of zeros after a queue's last one."""
    path = random_.choice(queue_files(root))
    last = max(path.parent.iterdir())
    last.with_name(f"{int(last.name) + 600:020d}").write_bytes(bytes(600))
    return f"zero file after {last.relative_to(root)}"


def toggle_abort(random_: random.Random, root: Path) -> str:
    """The other kind of start."""
    abort = root / "abort"
    if abort.exists():
        abort.unlink()
        return "abort removed"
    abort.touch()
    return "abort made"


def delete_checkpoint(random_: random.Random, root: Path) -> str:
    """No checkpoint."""
    (root / "checkpoint").unlink(missing_ok=True)
    return "no checkpoint"


def old_checkpoint(random_: random.Random, root: Path) -> str:
    """A checkpoint of another time."""
    path = root / "checkpoint"
    if not path.exists():
        return "no checkpoint"
    data = bytearray(path.read_bytes().ljust(48, b"\0"))
    shift = random_.choice([-5000, -500, 0, 5000, 1 << 40])
    for at in (0, 8):
        value = int.from_bytes(data[at : at + 8], "big")
        data[at : at + 8] = max(0, value + shift).to_bytes(8, "big")
    offset = random_.choice([0, random_.randrange(10 * _LOG_SIZE), int.from_bytes(data[40:48], "big")])
    data[40:48] = offset.to_bytes(8, "big")
    path.write_bytes(data)
    return f"checkpoint {shift:+} ms, offset {offset}"


def directory_in_index(random_: random.Random, root: Path) -> str:
    """A directory where index files are."""
    name = random_.choice(["20200101000000000", "backup"])
    (root / "index" / name).mkdir(parents=True)
    return f"index/{name}/"


LOG_DAMAGES: tuple[Damage, ...] = (
    *(flip_log, flip_header, flip_header, zero_log_page, zero_log_tail, cut_log_file, delete_log_file, delete_log),
    *(swap_log_files, add_zero_log_files, stray_in_log, directory_in_log, bad_blank),
    *(foreign_log_file, log_file_off_grid, gap_without_queues, huge_size),
)
QUEUE_DAMAGES: tuple[Damage, ...] = (
    *(delete_queues, delete_queue, delete_queue_file, zero_unit, zero_queue_tail, flip_queue, flip_batch_queue),
    *(all_queues_behind, cut_queue_file, zero_queue_file),
)
STATE_DAMAGES: tuple[Damage, ...] = (toggle_abort, toggle_abort, delete_checkpoint, old_checkpoint, directory_in_index)
DAMAGES = (*LOG_DAMAGES, *QUEUE_DAMAGES, *STATE_DAMAGES)


@dataclass(frozen=True)
class Case:
    """A damaged store, and what was done to it."""

    root: Path
    what: str


def damaged(name: str, seed: int, scratch: Path) -> Case:
    """A copy of a golden store with one to three random damages, the same for the same seed."""
    random_ = random.Random(f"{name} {seed}")
    root = stores.unpack(name, scratch / str(seed))
    chosen = random_.sample(DAMAGES, random_.choice([1, 1, 2, 2, 3]))
    done = [_do(damage, random_, root) for damage in chosen]
    return Case(root, f"{name} seed {seed}: {'; '.join(done)}")


def _do(damage: Damage, random_: random.Random, root: Path) -> str:
    try:
        return damage(random_, root)
    except (IndexError, ValueError, FileNotFoundError):
        return f"nothing left for {damage.__name__}"
