"""Random pairs of stores whose answer is known: copies, cut or parted at random records, with a controller's epochs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqtool.diff.comparison import Verdict
from tests.diff.pairs import compared, log_of, pair, write_epochs
from tests.verify.small_store import StoreBuilder


@pytest.mark.budget(5)
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 12), marks=pytest.mark.slow)], ids=["few", "more"])
def test_random_pairs(tmp_path: Path, seeds: range) -> None:
    """Where they part, how many messages each has alone, and what each would cut as the slave of the other."""
    for seed in seeds:
        chance = random.Random(seed)
        lengths = chance.randrange(5, 50), chance.randrange(5, 50)
        parted_at = chance.choice([None, chance.randrange(1, min(lengths))])
        first, second = log_of(lengths[0]), log_of(lengths[1], parted_at=parted_at)
        a, b = pair(tmp_path / str(seed), first, second)
        epochs: tuple[list[tuple[int, int]], list[tuple[int, int]]] = epochs_of(first, chance), []
        common = len(first.offsets) if parted_at is None else parted_at
        epochs[1].extend((number, start) for number, start in epochs[0] if start in first.offsets[:common])
        if parted_at is not None:
            epochs[1].append((99, second.offsets[parted_at]))
        write_epochs(a, epochs[0])
        write_epochs(b, epochs[1])
        found = compared(a, b)
        assert found.verdict == verdict_of(lengths, parted_at, same_epochs=epochs[0] == epochs[1]), seed
        same = min(lengths) if parted_at is None else parted_at
        alone = [found.tails[name].messages if name in found.tails else 0 for name in ("a", "b")]
        assert alone == [length - same for length in lengths], seed
        assert found.epochs is not None
        for following, mine, other, log, its in (
            (found.epochs.a_follows, epochs[0], epochs[1], first, second),
            (found.epochs.b_follows, epochs[1], epochs[0], second, first),
        ):
            point = point_of(mine, end_of(log), other, end_of(its))
            assert following.point == point, seed
            cut = following.cut.messages if following.cut else 0
            assert cut == sum(offset >= point for offset in log.offsets), seed


def epochs_of(builder: StoreBuilder, chance: random.Random) -> list[tuple[int, int]]:
    """Epochs with rising numbers that begin at records, the first at the first one."""
    begins = [0, *sorted(chance.sample(range(1, len(builder.offsets)), chance.randrange(3)))]
    return [(2 * number + 1, builder.offsets[begin]) for number, begin in enumerate(begins)]


def verdict_of(lengths: tuple[int, int], parted_at: int | None, *, same_epochs: bool) -> Verdict:
    if parted_at is not None:
        return "diverged"
    if lengths[0] == lengths[1]:
        return "same" if same_epochs else "differs"
    return "a-ahead" if lengths[0] > lengths[1] else "b-ahead"


def end_of(builder: StoreBuilder) -> int:
    return builder.start_offset + (len(builder.files) - 1) * builder.file_size + len(builder.files[-1])


def point_of(mine: list[tuple[int, int]], end: int, other: list[tuple[int, int]], other_end: int) -> int:
    """Up to where a slave keeps its log: the nearer end of its newest epoch that the master has with the same begin."""
    for number in reversed(range(len(mine))):
        if mine[number] in other:
            at = other.index(mine[number])
            ends = [[*(start for _, start in epochs[row + 1 :]), last][0]
                    for epochs, row, last in ((mine, number, end), (other, at, other_end))]  # fmt: skip
            return min(ends)
    raise AssertionError("both begin with the same epoch")
