"""Every target reads what brokers wrote, and the same cut and changed: what a fuzzer begins with, without one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from rmqtool.base.errors import UnreadableError
from tests.fuzz import harness
from tests.fuzz.harness import BoundError, Target
from tests.fuzz.targets import TARGETS

_CHANGES = 2
"""So many changed forms of each seed are tried."""


def inputs(name: str, target: Target) -> Iterator[bytes]:
    """All seeds, nothing, and some changed forms of each; always the same."""
    drawn = random.Random(name)
    yield b""
    for seed in target.seeds():
        yield seed
        for _ in range(_CHANGES):
            changed = bytearray(seed[: drawn.randrange(1, len(seed) + 1)])
            for _ in range(drawn.randrange(3)):
                changed[drawn.randrange(len(changed))] = drawn.choice((0, 1, 0x7F, 0x80, 0xFF))
            yield bytes(changed)


@pytest.mark.slow
def test_every_target() -> None:
    """One test, so that none of them is left to chance; what fails is named with its input."""
    for name, target in TARGETS.items():
        tried = 0
        for data in inputs(name, target):
            try:
                target.run(data)
            except Exception as error:
                raise AssertionError(f"{name} fails on {data.hex()}") from error
            tried += 1
        assert tried > 1 + _CHANGES


def refused(data: bytes) -> None:
    raise UnreadableError("cannot read")


def wrong(data: bytes) -> None:
    raise IndexError


def slow(data: bytes) -> None:
    end = time.thread_time() + 0.03
    while time.thread_time() < end:
        pass


def test_what_a_run_owes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of ours is an answer; any other, and a run without bounds, is not."""
    monkeypatch.setattr(harness, "MOST_SECONDS", 0.02)
    Target(refused, list).run(b"")
    with pytest.raises(IndexError):
        Target(wrong, list).run(b"")
    with pytest.raises(BoundError, match="s of CPU time for 1 bytes"):
        Target(slow, list).run(b"a")
    monkeypatch.setattr(harness, "MOST_KIB", -8)
    with pytest.raises(BoundError, match="KiB for 1 bytes"):
        Target(lambda data: None, list).run(b"a")
