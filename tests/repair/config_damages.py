"""Random damage to config files: cut, flipped, zeroed, swapped, emptied, deleted, grown, with or without their .bak."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

PAGE = 64
Damage = Callable[[Path, Random], object]


def cut(path: Path, chance: Random) -> None:
    """Ends anywhere."""
    os.truncate(path, chance.randrange(path.stat().st_size))


def flip(path: Path, chance: Random) -> None:
    """One to three bits are wrong."""
    data = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 3)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def zero(path: Path, chance: Random) -> None:
    """A stretch of zeros."""
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data))
    data[at : at + PAGE] = bytes(len(data[at : at + PAGE]))
    path.write_bytes(data)


def swap(path: Path, chance: Random) -> None:
    """Exchanged with another config file."""
    others = sorted(each for each in path.parent.iterdir() if each != path and each.is_file())
    other, spare = chance.choice(others), path.with_name("spare")
    path.rename(spare)
    other.rename(path)
    spare.rename(other)


def empty(path: Path, chance: Random) -> None:
    """No byte is left."""
    os.truncate(path, 0)


def delete(path: Path, chance: Random) -> None:
    """It is gone."""
    path.unlink()


def grow(path: Path, chance: Random) -> None:
    """Bytes of something else follow."""
    path.write_bytes(path.read_bytes() + chance.randbytes(chance.randint(1, 80)))


DAMAGES: Sequence[Damage] = (cut, flip, zero, swap, empty, delete, grow)
NAMES = (
    *("topics.json", "consumerOffset.json", "lmqConsumerOffset.json", "subscriptionGroup.json", "delayOffset.json"),
    *("consumerFilter.json", "consumerOrderInfo.json", "timermetrics"),
)


def damage(store: Path, chance: Random) -> list[str]:
    """Damage one to three files of a store, some with their .bak; what was done."""
    done = []
    there = [name for name in NAMES if (store / "config" / name).exists()]
    for name in chance.sample(there, chance.randint(1, 3)):
        for each in (name, f"{name}.bak") if chance.random() < 0.5 else (name,):
            path = store / "config" / each
            if path.exists() and path.stat().st_size:
                how = chance.choice(DAMAGES)
                how(path, chance)
                done.append(f"{getattr(how, '__name__', '')} {each}")
    return done
