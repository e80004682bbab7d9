"""The parts of log and index put together in order, as they come from several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmqtool.base.parallel import uninterrupted
from rmqtool.verify.part_result import PartResult
from rmqtool.verify.parts import AnyPart, LogPart

_MOST_AGAIN = 3  # seams that are looked at more closely; behind them all that is left is one part


class PartMerger:
    """Puts results together where their seams meet; else both parts are checked again, as one.

    A seam does not meet where damage lies at a border, or where the index is not in the order of the log.
    """

    def __init__(self, parts: Sequence[AnyPart], total: PartResult, again: Callable[[LogPart], PartResult]) -> None:
        self._parts = [part for part in parts if isinstance(part, LogPart)]  # the first ones
        self._of_index: dict[int, PartResult] = {}
        self._again = again
        self._total = total
        self._waiting: dict[int, PartResult] = {}
        self._next = 0
        self._open: tuple[LogPart, PartResult] | None = None
        self._left = _MOST_AGAIN

    def add(self, number: int, result: PartResult) -> None:
        """Take the result of a part; raises RmqtoolError."""
        if number >= len(self._parts):
            self._of_index[number] = result
            return
        if self._left < 0:
            return  # it is in the part that is the last now
        self._waiting[number] = result
        while self._next in self._waiting:
            self._join(self._parts[self._next], self._waiting[self._next])

    def keep(self, number: int, result: PartResult) -> None:
        """Take what is known of a part that was interrupted: it is added to the total as it is."""
        if number >= len(self._parts):
            self._of_index[number] = result
        elif self._left >= 0:
            self._waiting[number] = result

    def total(self) -> PartResult:
        """All that has come, whether or not it is complete; nothing can be added then."""
        with uninterrupted():  # what is half done is worth nothing
            last = [self._open[1]] if self._open else []
            left = {**self._waiting, **self._of_index}
            for result in (*last, *(left[number] for number in sorted(left))):
                self._total.extend(result)
            self._open, self._waiting, self._of_index = None, {}, {}
        return self._total

    def _join(self, part: LogPart, result: PartResult) -> None:
        before = self._open
        if before is not None and part.index_stop is None:
            if result.seam.first is None:  # nothing begins there: what is before goes on
                before[1].reached.extend(result.reached)
                part, result, before = LogPart(before[0].start, part.stop, before[0].index_start), before[1], None
            elif not before[1].meets(result):
                self._left -= 1
                stop = part.stop if self._left >= 0 else self._parts[-1].stop
                part = LogPart(before[0].start, stop, before[0].index_start)
                result, before = self._again(part), None
        with uninterrupted():
            if before is not None:
                self._total.extend(before[1])
            self._open = part, result
            del self._waiting[self._next]
            self._next += 1
            if self._left < 0:
                self._waiting.clear()
