"""What a store may lose: every kind of file, what may happen to it, and what erases both sides of a trace.

A loss is applied to a copy of a store. An `older` copy of the same store, where there is one, is what a backup of some
time before would give back. The same random state gives the same loss.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.copies import copied

PAGE = 4096
_LATER_S = 3600
_NAME = re.compile(r"\d{20}")


@dataclass(frozen=True)
class Scene:
    """The store that something happens to, and an older copy of it."""

    store: Path
    older: Path | None
    random: random.Random


@dataclass(frozen=True)
class Loss:
    """One thing that happens to a store: `apply` is False where the store has nothing that it could happen to."""

    name: str
    apply: Callable[[Scene], bool]
    kind: str = ""
    operation: str = ""


Operation = Callable[[Scene, list[Path]], bool]


def delete(scene: Scene, files: list[Path]) -> bool:
    """Remove them, with all that is in them."""
    for path in files:
        _remove(path)
    return True


def empty(scene: Scene, files: list[Path]) -> bool:
    """Leave no byte, and no file in a directory."""
    for path in files:
        if path.is_dir():
            _remove(path)
            path.mkdir()
        else:
            os.truncate(path, 0)
    return True


def halve(scene: Scene, files: list[Path]) -> bool:
    """Cut them in the middle."""
    for path in files:
        os.truncate(path, path.stat().st_size // 2)
    return all(path.stat().st_size for path in files)


def zero_page(scene: Scene, files: list[Path]) -> bool:
    """Overwrite a page that holds something."""
    for path in files:
        with path.open("r+b") as file:
            pages = [number for number in range(-(-path.stat().st_size // PAGE)) if any(_page(file.fileno(), number))]
            if not pages:
                return False
            number = scene.random.choice(pages)
            os.pwrite(file.fileno(), bytes(len(_page(file.fileno(), number))), number * PAGE)
    return True


def restore_older(scene: Scene, files: list[Path]) -> bool:
    """Put an older copy in the place of each; what the backup does not have stays as it is."""
    restored = False
    for path in files:
        before = scene.older and scene.older / path.relative_to(scene.store)
        if before is None or not before.exists() or _same(before, path):
            continue
        _remove(path)
        copied(before, path)
        restored = True
    return restored


def swap(scene: Scene, files: list[Path]) -> bool:
    """Exchange the last of them with its neighbour in the directory."""
    path = files[-1]
    there = sorted(other for other in path.parent.iterdir() if other.is_file())
    others = [other for other in there if other not in files]
    if not others:
        return False
    other = min(others, key=lambda each: abs(there.index(each) - there.index(path)))
    if _same(path, other):
        return False
    spare = path.with_name("spare")
    path.rename(spare)
    other.rename(path)
    spare.rename(other)
    return True


def duplicate(scene: Scene, files: list[Path]) -> bool:
    """Copy the last of them to the name that would follow, or to one that no broker gives."""
    path = files[-1]
    name = path.name
    if _NAME.fullmatch(name):
        copied(path, path.with_name(f"{int(name) + path.stat().st_size:020d}"))
    elif name.isdigit():
        copied(path, path.with_name(str(int(name) + 1)))
    else:
        copied(path, path.with_name(f"{name}.copy"))
    return True


def touch(scene: Scene, files: list[Path]) -> bool:
    """Give them a later time."""
    for path in files:
        later = path.stat().st_mtime + _LATER_S
        os.utime(path, (later, later))
    return True


FILE_OPERATIONS: Mapping[str, Operation] = {
    "deleted": delete,
    "emptied": empty,
    "cut in half": halve,
    "page of zeros": zero_page,
    "older copy": restore_older,
    "swapped": swap,
    "duplicated": duplicate,
    "touched": touch,
}
DIRECTORY_OPERATIONS: Mapping[str, Operation] = {"deleted": delete, "emptied": empty, "older copy": restore_older}

CONFIG_FILES = (
    "topics.json",
    "consumerOffset.json",
    "delayOffset.json",
    "subscriptionGroup.json",
    "lmqConsumerOffset.json",
    "consumerFilter.json",
    "consumerOrderInfo.json",
    "timermetrics",
    "transactionMetrics",
)

# Kind of file -> where such files lie, and which of them is taken: a number, or None for all.
FILES: Mapping[str, tuple[str, int | None]] = {
    "commit log file, the first": ("commitlog/*", 0),
    "commit log file, the last": ("commitlog/*", -1),
    "consume queue file": ("consumequeue/orders/0/*", -1),
    "consume queue file, not the last": ("consumequeue/orders/0/*", 0),
    "retry queue file": ("consumequeue/%RETRY%billing/0/*", -1),
    "dead letter queue file": ("consumequeue/%DLQ%billing/0/*", -1),
    "light queue file": ("consumequeue/%LMQ%alice/0/*", -1),
    "half message queue file": ("consumequeue/RMQ_SYS_TRANS_HALF_TOPIC/0/*", -1),
    "op message queue file": ("consumequeue/RMQ_SYS_TRANS_OP_HALF_TOPIC/0/*", -1),
    "delay queue file": ("consumequeue/SCHEDULE_TOPIC_XXXX/17/*", -1),
    "timer queue file": ("consumequeue/rmq_sys_wheel_timer/0/*", -1),
    "batch queue file": ("batchconsumequeue/bulk/0/*", -1),
    "index file": ("index/*", -1),
    "checkpoint": ("checkpoint", 0),
    "lock": ("lock", 0),
    "timer wheel": ("timerwheel", 0),
    "timer log file": ("timerlog/*", -1),
    "config/timercheck": ("config/timercheck", 0),
    "compaction/position-checkpoint": ("compaction/position-checkpoint", 0),
    **{f"config/{name}": (f"config/{name}", 0) for name in CONFIG_FILES},
    **{f"config/{name} with .bak": (f"config/{name}*", None) for name in CONFIG_FILES},
}
DIRECTORIES: Mapping[str, tuple[str, int | None]] = {
    "commitlog/": ("commitlog", 0),
    "consumequeue/": ("*consumequeue", None),
    "consumequeue/ of a topic": ("consumequeue/orders", 0),
    "consumequeue/ of one queue": ("consumequeue/orders/0", 0),
    "consumequeue/ of the half messages": ("consumequeue/RMQ_SYS_TRANS_HALF_TOPIC", 0),
    "consumequeue/ of the delays": ("consumequeue/SCHEDULE_TOPIC_XXXX", 0),
    "consumequeue/ of the timers": ("consumequeue/rmq_sys_wheel_timer", 0),
    "consumequeue/ of a light queue": ("consumequeue/%LMQ%alice", 0),
    "batchconsumequeue/": ("batchconsumequeue", 0),
    "index/": ("index", 0),
    "config/": ("config", 0),
    "timerlog/": ("timerlog", 0),
}


def single_losses() -> Iterator[Loss]:
    """Every kind of file and directory with everything that may happen to it."""
    for kinds, operations in ((FILES, FILE_OPERATIONS), (DIRECTORIES, DIRECTORY_OPERATIONS)):
        for kind, (pattern, number) in kinds.items():
            for name, operation in operations.items():
                yield Loss(f"{kind}: {name}", _applied(operation, pattern, number), kind, name)


def _applied(operation: Operation, pattern: str, number: int | None) -> Callable[[Scene], bool]:
    def apply(scene: Scene) -> bool:
        files = sorted(scene.store.glob(pattern))
        if not files:
            return False
        return operation(scene, files if number is None else [files[number]])

    return apply


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _same(one: Path, other: Path) -> bool:
    return one.is_file() and other.is_file() and one.read_bytes() == other.read_bytes()


def _page(descriptor: int, number: int) -> bytes:
    return os.pread(descriptor, PAGE, number * PAGE)
