"""Which keys queries find after a start: pairs of a key and a message (`IndexService#load`, `#buildIndex`)."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.store.index_files import IndexFile

CountKeys = Callable[[int, int, int], int]
"""Reads the log from where a run begins, and counts the keys of messages from one physical offset to before another."""


class Unreached(NamedTuple):
    """Keys in one index file to which no chain leads: physical offset and hash, each for so many of them."""

    keys: list[tuple[int, int]]
    each: int


@dataclass
class KeyTally:
    """The keys of the log's messages, without tags, counted run by run, in log order.

    `starts` are the physical offsets of the runs, `counts` their keys, `missing` those of them without an index unit,
    `firsts` and `lasts` the physical offsets of the first and the last message that misses one, -1 for none, and
    `at_lasts` how many the last one misses.
    `unreached` are keys that have a unit in an index file to which no chain leads, `in_damage` counts keys of messages
    of which only damage is left, and `damaged` are the physical offsets of messages that are among those of the runs
    and not whole, once for each key; of messages with damaged keys these are `fields`, physical offset and hash.
    `oversized` are those of messages that have only a wrong size, so that queries still find them. Messages `renamed`
    by a damaged topic, once for each key, lose their keys where a start puts these again.
    Of messages in damage `with_tags`, physical offsets, one unit is taken for that of their tags.
    Of those `in_damage`, messages with `wrong_magic` codes are whole but for these: physical offsets, for each key.
    """

    starts: array[int] = field(default_factory=lambda: array("q"))
    counts: array[int] = field(default_factory=lambda: array("q"))
    missing: array[int] = field(default_factory=lambda: array("q"))
    firsts: array[int] = field(default_factory=lambda: array("q"))
    lasts: array[int] = field(default_factory=lambda: array("q"))
    at_lasts: array[int] = field(default_factory=lambda: array("q"))
    unreached: dict[Path, Unreached] = field(default_factory=dict)
    in_damage: int = 0
    with_tags: array[int] = field(default_factory=lambda: array("q"))
    wrong_magic: array[int] = field(default_factory=lambda: array("q"))
    damaged: array[int] = field(default_factory=lambda: array("q"))
    fields: list[tuple[int, int]] = field(default_factory=list)
    oversized: array[int] = field(default_factory=lambda: array("q"))
    renamed: array[int] = field(default_factory=lambda: array("q"))

    def add(self, start: int, count: int) -> None:
        """Add a run of records."""
        self.starts.append(start)
        self.counts.append(count)
        self.missing.append(0)
        self.firsts.append(-1)
        self.lasts.append(-1)
        self.at_lasts.append(0)

    def miss(self, physical_offsets: NDArray[np.int64]) -> None:
        """Note keys of the last run without a unit, by the offsets of their messages, in log order."""
        if len(physical_offsets):
            self.missing[-1] += len(physical_offsets)
            self.firsts[-1] = int(physical_offsets[0]) if self.firsts[-1] < 0 else self.firsts[-1]
            self.lasts[-1] = int(physical_offsets[-1])
            self.at_lasts[-1] = int(np.count_nonzero(physical_offsets == physical_offsets[-1]))

    def runs_missing(self) -> Iterator[tuple[int, int]]:
        """The first message of each run that misses units, its physical offset, and how many keys have none."""
        return ((first, missing) for first, missing in zip(self.firsts, self.missing, strict=True) if missing)

    def extend(self, later: KeyTally) -> None:
        """Add those of a later part of the log."""
        for name in _LISTS:
            getattr(self, name).extend(getattr(later, name))
        self.unreached |= later.unreached
        self.in_damage += later.in_damage

    def without_tags(self, physical_offsets: Set[int]) -> None:
        """Count all units of some messages in damage as keys: their queue entries show that they have no tags."""
        self.in_damage += sum(offset in physical_offsets for offset in self.with_tags)
        self.with_tags = array("q", (offset for offset in self.with_tags if offset not in physical_offsets))

    @property
    def not_whole(self) -> int:
        """How many keys are those of messages that are not whole."""
        return self.in_damage + len(self.damaged) + len(self.fields) + len(self.oversized)

    def missing_before(self, stop: int, count: CountKeys) -> int:
        """How many keys of messages before physical offset `stop` have no unit; of a run none between two has one."""
        last = bisect_left(self.starts, stop)
        missing = sum(self.missing[:last])
        if last and (final := self.lasts[last - 1]) >= stop:
            begin, last_missing = max(stop, self.firsts[last - 1]), self.at_lasts[last - 1]
            from_stop = last_missing + (count(self.starts[last - 1], begin, final) if begin < final else 0)
            missing -= min(from_stop, self.missing[last - 1])
        return missing

    def between(self, start: int, stop: int, count: CountKeys) -> int:
        """How many keys messages from physical offset `start` to before `stop` have.

        Of a run that begins before `start`, or goes on to `stop`, only a part counts, which is read again.
        """
        first, last = bisect_left(self.starts, start), bisect_left(self.starts, stop)
        if start >= stop or not last:
            return 0
        if first == last:
            return count(self.starts[last - 1], start, stop)
        before = count(self.starts[first - 1], start, self.starts[first]) if first else 0
        return before + sum(self.counts[first : last - 1]) + count(self.starts[last - 1], self.starts[last - 1], stop)


_LISTS = [each.name for each in fields(KeyTally) if each.name not in ("unreached", "in_damage")]


@dataclass(frozen=True)
class IndexAfter:
    """The index after a start, of which the files `kept` are left: of which messages it has keys.

    Keys of messages from `put_from` on are put again, up to the end of the log, `log_end`; all are physical offsets.
    Where files were deleted, those that are kept have the keys of messages up to `held_end`; else it is None. Of the
    first message after it they have `held_of_next` keys. With `takes_any_magic` queries give messages whose magic code
    is wrong.
    """

    kept: tuple[IndexFile, ...]
    put_from: int
    log_end: int
    held_end: int | None = None
    held_of_next: int = 0
    takes_any_magic: bool = False

    @property
    def _puts_from(self) -> int:
        """The first message whose keys are put: none before the last one of the last file, whose keys are put twice."""
        return max(self.put_from, self.kept[-1].end_physical_offset if self.kept else -1)

    @property
    def _put_from(self) -> int:
        """The same, at most the end of the log."""
        return min(self._puts_from, self.log_end)

    @property
    def _held(self) -> int:
        """Of messages before this physical offset the keys are in the files that are kept."""
        return self._put_from if self.held_end is None else min(self.held_end + 1, self._put_from)

    def puts_again(self, physical_offset: int) -> bool:
        """Whether the start puts the keys of a message into the index."""
        return physical_offset >= self._puts_from

    def keys_not_found(self, keys: KeyTally, count: CountKeys) -> int:
        """The keys of whole messages in the log, which ended at any offset, that queries do not find."""
        put_from, held = self._put_from, self._held
        never_put = max(0, keys.between(held, put_from, count) - self.held_of_next)
        cut = keys.between(self.log_end, MAX_OFFSET, count)
        damaged = [*keys.damaged, *(offset for offset, _ in keys.fields)]
        not_whole = sum(offset < held or put_from <= offset < self.log_end for offset in damaged)
        whole, fields = {*keys.damaged}, {*keys.fields}
        unreached = sum(
            found.each * sum(key[0] < held and key[0] not in whole and key not in fields for key in found.keys)
            for found in (keys.unreached[file.path] for file in self.kept if file.path in keys.unreached)
        )
        lost = keys.in_damage + len(keys.oversized) - self.found_in_damage(keys) + not_whole
        lost -= self.found_with_wrong_magic(keys).total()
        lost += sum(put_from <= offset < self.log_end for offset in keys.renamed)
        return keys.missing_before(held, count) + lost + unreached + never_put + cut

    def found_in_damage(self, keys: KeyTally) -> int:
        """The keys of messages in damage that have units in files that are left; no start puts them again."""
        held = MAX_OFFSET if self.held_end is None else self.held_end
        return sum(offset < self.log_end and offset <= held for offset in keys.oversized)

    def found_with_wrong_magic(self, keys: KeyTally) -> Counter[int]:
        """The keys that queries find though the magic code of their messages is wrong: how many, by physical offset."""
        return Counter(offset for offset in keys.wrong_magic if self.takes_any_magic and offset < self._held)
