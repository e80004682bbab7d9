"""Any damage to any file of one store is a difference or means nothing, and never ends the comparison."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.base.errors import Exit
from tests.commands.running import rmqtool
from tests.copies import copied
from tests.diff.pairs import log_of, write_epochs
from tests.unchanged import unchanged
from tests.verify.small_store import small_store


def damage(path: Path, chance: random.Random) -> None:
    """Flip, zero, cut, swap or grow."""
    data = bytearray(path.read_bytes())
    if not data:
        return
    low = chance.randrange(len(data))
    high = min(len(data), low + chance.choice((1, 20, 500, 1 << 20)))
    match chance.choice(("flip", "zero", "cut", "swap", "grow")):
        case "flip":
            data[low] ^= 1 << chance.randrange(8)
        case "zero":
            data[low:high] = bytes(high - low)
        case "cut":
            del data[low:]
        case "swap":
            data[low:], data[:low] = data[:low], data[low:]
        case "grow":
            data += chance.randbytes(chance.choice((1, 20, 5000)))
    path.write_bytes(data)


@pytest.mark.slow
@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_random_damage(seed: int) -> None:
    """The answer is valid JSON, equal files give 0, and neither store is changed."""
    chance = random.Random(seed)
    with TemporaryDirectory() as directory:
        a = small_store(Path(directory) / "a", log_of())
        write_epochs(a, [(1, 0), (2, 900)])
        b = copied(a, Path(directory) / "b")
        files = [path for path in sorted(b.rglob("*")) if path.is_file()]
        for path in chance.sample(files, chance.randint(0, 2)):
            damage(path, chance)
        same = all(path.read_bytes() == (a / path.relative_to(b)).read_bytes() for path in files)
        with unchanged(a), unchanged(b):
            found = rmqtool("diff", a, b, "--json")
    assert found.status in ((Exit.OK,) if same else (Exit.OK, Exit.FINDINGS, Exit.LOSSY, Exit.FAILED)), found.out
    assert found.err == ""
