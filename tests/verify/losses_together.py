"""Losses that touch more than one file, or a value in one: what erases one side's traces, and edited tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.copies import copied
from tests.verify.losses import CONFIG_FILES, Loss, Scene, delete, restore_older, single_losses

_OFFSET = re.compile(r"(?<![\d\"])(\d+):(-?\d+)")  # only the tables of offsets have keys without quotation marks
_TOPIC_LINES = ("orders", "%RETRY%billing", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
_LOG, _QUEUES, _INDEX = "commitlog/*", "*consumequeue/*", "index/*"
_TIMER = ("timerwheel", "timerlog", "config/timercheck")
_BACKUPS = tuple(f"config/{name}.bak" for name in CONFIG_FILES)

_DELETED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("log and queues", (_LOG, _QUEUES)),
    ("directories of log and queues", ("commitlog", "*consumequeue")),
    ("log, queues and index", (_LOG, _QUEUES, _INDEX)),
    ("log, queues, index and checkpoint", (_LOG, _QUEUES, _INDEX, "checkpoint")),
    ("log, queues, index and config", (_LOG, _QUEUES, _INDEX, "config")),
    ("log and index", (_LOG, _INDEX)),
    ("log and config", (_LOG, "config")),
    ("all but config", (_LOG, _QUEUES, _INDEX, "checkpoint", "timerwheel", "timerlog", "lock")),
    ("queues and index", (_QUEUES, _INDEX)),
    ("queues, index and checkpoint", (_QUEUES, _INDEX, "checkpoint")),
    ("queues and checkpoint", (_QUEUES, "checkpoint")),
    ("queues and config", (_QUEUES, "config")),
    ("index and checkpoint", (_INDEX, "checkpoint")),
    ("config and checkpoint", ("config", "checkpoint")),
    ("config, index and checkpoint", ("config", _INDEX, "checkpoint")),
    ("topics and groups", ("config/topics.json*", "config/subscriptionGroup.json*")),
    ("committed and delayed offsets", ("config/*onsumerOffset.json*", "config/delayOffset.json*")),
    ("delay queues and delayed offsets", ("consumequeue/SCHEDULE_TOPIC_XXXX", "config/delayOffset.json*")),
    ("timer wheel and log", _TIMER[:2]),
    ("timer wheel and check", _TIMER[::2]),
    ("timer log and check", _TIMER[1:]),
    ("timer wheel, log and check", _TIMER),
    ("timer wheel, log, check and queue", (*_TIMER, "consumequeue/rmq_sys_wheel_timer")),
    ("every .bak", _BACKUPS),
    ("every file of config but .bak", tuple(f"config/{name}" for name in CONFIG_FILES)),
)
_OLDER: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("log", (_LOG,)),
    ("log and queues", (_LOG, _QUEUES)),
    ("log, queues and index", (_LOG, _QUEUES, _INDEX)),
    ("log, queues, index and checkpoint", (_LOG, _QUEUES, _INDEX, "checkpoint")),
    ("everything but the timer", (_LOG, _QUEUES, _INDEX, "checkpoint", "config/*.json*", "config/transactionMetrics*")),
    ("everything but config", (_LOG, _QUEUES, _INDEX, "checkpoint", "timerwheel", "timerlog")),
    ("queues and index", (_QUEUES, _INDEX)),
    ("queues, index and checkpoint", (_QUEUES, _INDEX, "checkpoint")),
    ("config and checkpoint", ("config", "checkpoint")),
    ("timer wheel and log", _TIMER[:2]),
    ("timer wheel, log and check", _TIMER),
)


NO_WITNESS: Mapping[str, str] = {
    "consumerOffset.json: offsets halved": "a group may not have committed more",
    "lmqConsumerOffset.json: offsets halved": "a group may not have committed more",
    "orders in topics.json: perm 0": "an operator may have set it",
}
"""Rows that leave a store that a broker could have left: whatever verify says of them, it cannot know."""


_MOMENT = "a broker could have left these slightly older offsets"
_SLAVE = "a slave can have offsets ahead of its queues"
UNSEEN: Mapping[str, str] = {
    **NO_WITNESS,
    **{
        f"config/{name}: older copy": _MOMENT
        for name in (
            "delayOffset.json",
            "lmqConsumerOffset.json",
            "consumerOffset.json with .bak",
            "delayOffset.json with .bak",
            "lmqConsumerOffset.json with .bak",
        )
    },
    "config/: older copy": _MOMENT,
    "config and checkpoint: older copies": _MOMENT,
    "everything but the timer: older copies": _MOMENT,
    "timer wheel, log and check: older copies": _MOMENT,
    "consumerOffset.json: offsets + 1": _SLAVE,
    "lmqConsumerOffset.json: offsets + 1": _SLAVE,
    "timer log file: cut in half": "the size of timer log files is stored nowhere",
    "RMQ_SYS_TRANS_HALF_TOPIC in topics.json: line gone": "the broker creates it again",
}
"""The same, and rows of which a store of that state may be as it should be."""

UNSEEN_TOGETHER = tuple(
    frozenset({f"timer wheel: {wheel}", "timer log file: older copy", "config/timercheck: older copy"})
    for wheel in ("deleted", "emptied", "older copy")
)
"""Single rows that make an unseen one: a start fills the wheel from the log, and then all are of a moment before."""


def joint_losses() -> Iterator[Loss]:
    """Every combination and every edited table."""
    for name, patterns in _DELETED:
        yield Loss(f"{name}: all deleted", partial(_each, delete, patterns), name, "all deleted")
    for name, patterns in _OLDER:
        yield Loss(f"{name}: older copies", partial(_older, patterns), name, "older copies")
    yield from _edited_offsets()
    for topic in _TOPIC_LINES:
        yield _edit(f"{topic} in topics.json: line gone", "topics.json", partial(_without_topic, topic))
        yield _edit(f"{topic} in topics.json: perm 0", "topics.json", partial(_without_permission, topic))
    yield Loss("a topic's queues and its line in topics.json: gone", _without_trace_of_a_topic)
    for name in CONFIG_FILES:
        yield _edit(f"config/{name} with .bak: {{}}", name, lambda text: "{}")
        yield _edit(f"config/{name} with .bak: garbage", name, lambda text: '{"x')
        yield Loss(f"config/{name}.bak: garbage", partial(_garbage_backup, name))
    yield _edit('consumerOffset.json: {"table":{}}', "consumerOffset.json", lambda text: '{"table":{}}')
    yield Loss("index file: garbage header", _garbage_header)


def all_losses() -> list[Loss]:
    """Every row of the matrix."""
    return [*single_losses(), *joint_losses()]


def _edited_offsets() -> Iterator[Loss]:
    for name in ("consumerOffset.json", "delayOffset.json", "lmqConsumerOffset.json"):
        yield _edit(f"{name}: offsets 0", name, _offsets(lambda offset: 0))
        yield _edit(f"{name}: offsets halved", name, _offsets(lambda offset: offset // 2))
        yield _edit(f"{name}: offsets -10", name, _offsets(lambda offset: -10))
        yield _edit(f"{name}: offsets + 1", name, _offsets(lambda offset: offset + 1))
        yield _edit(f"{name}: offsets + 100000", name, _offsets(lambda offset: offset + 100_000))
        yield _edit(f"{name}: offsets 2^62", name, _offsets(lambda offset: 1 << 62))


def _each(operation: Callable[[Scene, list[Path]], bool], patterns: Sequence[str], scene: Scene) -> bool:
    files = sorted({path for pattern in patterns for path in scene.store.glob(pattern)})
    return bool(files) and operation(scene, files)


def _older(patterns: Sequence[str], scene: Scene) -> bool:
    """What an older copy has; what it does not have goes, as where a whole directory is restored."""
    if scene.older is None or not _each(restore_older, patterns, scene):
        return False
    for pattern in patterns:
        for path in sorted(scene.store.glob(pattern)):
            if not (scene.older / path.relative_to(scene.store)).exists():
                delete(scene, [path])
    return True


def _edit(name: str, file: str, change: Callable[[str], str]) -> Loss:
    """The same change in a file of config/ and in its .bak."""

    def apply(scene: Scene) -> bool:
        changed = False
        for path in sorted((scene.store / "config").glob(f"{file}*")):
            text = path.read_text(encoding="utf-8")
            changed |= change(text) != text
            path.write_text(change(text), encoding="utf-8")
        return changed

    kind, _, operation = name.partition(": ")
    return Loss(name, apply, kind, operation)


def _offsets(change: Callable[[int], int]) -> Callable[[str], str]:
    return lambda text: _OFFSET.sub(lambda found: f"{found[1]}:{change(int(found[2]))}", text)


def _without_topic(topic: str, text: str) -> str:
    entry = rf'\s*"{re.escape(topic)}":\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}},?'
    return re.sub(r",(\s*\})", r"\1", re.sub(entry, "", text))


def _without_permission(topic: str, text: str) -> str:
    entry = rf'("{re.escape(topic)}":\{{(?:[^{{}}]|\{{[^{{}}]*\}})*?"perm":)\d+'
    return re.sub(entry, r"\g<1>0", text)


def _without_trace_of_a_topic(scene: Scene) -> bool:
    line = _edit("", "topics.json", partial(_without_topic, "orders"))
    return line.apply(scene) and _each(delete, ("consumequeue/orders",), scene)


def _garbage_backup(name: str, scene: Scene) -> bool:
    path = scene.store / "config" / f"{name}.bak"
    if not path.exists():
        copied(scene.store / "config" / name, path) if (scene.store / "config" / name).exists() else None
    if not path.exists():
        return False
    path.write_text('{"x', encoding="utf-8")
    return True


def _garbage_header(scene: Scene) -> bool:
    files = sorted(scene.store.glob(_INDEX))
    if not files:
        return False
    with files[-1].open("r+b") as file:
        file.write(scene.random.randbytes(40))
    return True
