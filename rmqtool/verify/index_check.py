"""The log against the index: each key that the broker puts has its unit, and each unit is of such a key.

Keys and units are both in the order of the log, and are compared in blocks; only blocks that differ are compared as
sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnreadableError
from rmqtool.base.tolerant import skip_unreadable
from rmqtool.broker.dispatched_record import index_of_another_log
from rmqtool.broker.dispatcher import TAGS, IndexKeys
from rmqtool.broker.field_damage import MAX_SUSPECTS
from rmqtool.clients.keys import IndexAfter, KeyTally
from rmqtool.findings.report import Report
from rmqtool.formats.index_file import unit_position
from rmqtool.formats.java import string_hash
from rmqtool.rules.system_topics import OP_TOPIC
from rmqtool.scan.block import Positions
from rmqtool.scan.frames import RecordRun
from rmqtool.store.index_files import index_paths
from rmqtool.store.snapshot import Snapshot
from rmqtool.verify.bad_extents import TORN, UNREAD, UNSOUND_FIELDS, WRONG_MAGIC
from rmqtool.verify.index_sequence import FileUnits
from rmqtool.verify.part_result import PartResult
from rmqtool.verify.task import StoreReader

_TAGS_OF_OP = abs(string_hash(f"{OP_TOPIC}#T#d"))  # TransactionalMessageUtil.REMOVE_TAG
_AHEAD = 8  # consecutive units that point after a block end it: a single one may be damaged
_CHUNK = 1 << 16
_FEW = 256  # missing keys of one run that are held to what an older release puts
_MAX_SECONDS = (1 << 31) - 1
_HASH_BITS = 31
_MAX_WRONG_MAGIC = 1 << 14
_NO_DAMAGE = (None, TORN, UNREAD, *UNSOUND_FIELDS)  # a torn record was never whole on disk
_LENGTHS = "lengths"  # of a record that says another size than it has
_PUT_AGAIN = "the next start puts these keys into the index"
_UNKNOWN = "it depends on what could not be read whether the next start puts these keys into the index"
_PUT_UNDER_ANOTHER = "the next start puts these keys under the damaged topic, where queries do not find the messages"
_TAGS_NOT_FOUND = "queries by tag, which brokers answer since 5.4.0, do not find these messages"


class IndexCheck:
    """Compares the keys of one part of the log with the index units."""

    def __init__(self, reader: StoreReader, result: PartResult, start: int, stop: int | None = None) -> None:
        """Units from number `start` to before `stop`, or to the last one, are compared; findings go to `result`."""
        self._store = reader.store
        self._report = result.report
        self._tally = result.keys
        self._extents = result.extents
        self._suspects = result.suspects
        self._units = reader.index
        self._lookups = reader.lookups
        self._log_start = reader.log_start
        self._live = reader.task.live
        self._tags_expected = reader.task.tags_expected
        self._with_tags = True
        self._not_whole: Positions = np.empty(0, np.intp)
        self._at = start
        self._stop = reader.index.total if stop is None else stop

    @property
    def at(self) -> int:
        """Number of the first unit that was not compared yet."""
        return self._at

    def add(self, keys: IndexKeys, records: RecordRun, not_whole: Positions) -> None:
        """Compare the keys of a run of records, some of them damaged."""
        start, stop = records.physical_offset, records.physical_offset + records.size
        self._report.check("index.missing", len(keys))
        self._tally.add(start, int(np.count_nonzero(keys.are_found)))
        self._not_whole = not_whole
        if len(not_whole):
            self._tally.damaged.extend(keys.physical_offsets[self._are_damaged(keys) & keys.are_found].tolist())
        if not len(keys) or self._match_in_order(keys, with_tags=self._with_tags):
            return
        if self._match_in_order(keys, with_tags=not self._with_tags):
            self._with_tags = not self._with_tags
            return
        self._compare_sets(keys, records, stop)

    def leave_out(self, stop: int) -> None:
        """Skip the units that point before physical offset `stop`, whose messages could not be read."""
        first, units = self._at, self._window(stop)
        self._at += len(units)
        self._explain(first + np.arange(len(units)), units, units)

    def finish(self, log_end: int | None) -> None:
        """Check the remaining units; `log_end` is the end of the log's last record, None when more follows."""
        while self._at < self._stop:
            units = self._units.read(self._at, min(_CHUNK, self._stop - self._at))
            if not len(units):
                return
            unit_numbers = self._at + np.arange(len(units))
            beyond = np.zeros(len(units), dtype=np.bool_)
            if log_end is not None:
                beyond = units["physical_offset"] >= log_end
                self._add("index.ahead", {"log_end": log_end}, unit_numbers[beyond])
            self._explain(unit_numbers[~beyond], units[~beyond], units)
            self._at += len(units)

    def _match_in_order(self, keys: IndexKeys, *, with_tags: bool) -> bool:
        """Compare the next units with the keys one by one; when all are equal, go on after them."""
        rows = np.flatnonzero(keys.kinds != TAGS) if not with_tags else None
        count = len(keys) if rows is None else len(rows)
        if count > self._stop - self._at:
            return False
        hashes, offsets, timestamps = keys.key_hashes, keys.physical_offsets, keys.store_timestamps
        if rows is not None:
            hashes, offsets, timestamps = hashes[rows], offsets[rows], timestamps[rows]
        units = self._units.read(self._at, count)
        if len(units) != count or (units["key_hash"] != hashes).any() or (units["physical_offset"] != offsets).any():
            return False
        self._check_seconds(self._at, units, timestamps)
        self._at += count
        if not with_tags:
            self._miss_tags(keys)
        return True

    def _miss_tags(self, keys: IndexKeys) -> None:
        if self._tags_expected:
            self._miss(keys.kinds == TAGS, keys)

    def _check_seconds(self, first: int, units: NDArray[np.void], timestamps: NDArray[np.int64]) -> None:
        begins = self._units.begin_timestamps(first, len(units))
        seconds = units["seconds_since_begin"].astype(np.int64)
        rests = timestamps - begins
        rests -= seconds * 1000
        if ((rests.view(np.uint64) < 1000) | (begins <= 0)).all() and int(seconds.min(initial=0)) >= 0:
            return  # the usual case: a division would take longer than all other comparisons
        self._compare_seconds(first + np.arange(len(units)), units, timestamps, begins)

    def _compare_seconds(
        self, unit_numbers: NDArray[np.intp], units: NDArray[np.void], timestamps: NDArray[np.int64],
        begins: NDArray[np.int64],
    ) -> None:  # fmt: skip
        seconds = np.clip((timestamps - begins) // 1000, 0, _MAX_SECONDS)
        wrong = np.flatnonzero((units["seconds_since_begin"] != seconds) & (begins > 0))
        for row in wrong.tolist():
            stored = int(units["seconds_since_begin"][row])
            facts = {"problem": "seconds", "found": stored, "expected": int(seconds[row])}
            self._add("index.unit", facts, unit_numbers[row : row + 1])

    def _compare_sets(self, keys: IndexKeys, records: RecordRun, stop: int) -> None:
        first, start = self._at, records.physical_offset
        units = self._window(stop)
        unit_numbers = first + np.arange(len(units))
        self._at += len(units)
        inside = (units["physical_offset"] >= start) & (units["physical_offset"] < stop)
        inside &= units["key_hash"] >= 0
        expected = _codes(keys.physical_offsets - start, keys.key_hashes)
        stored = _codes(units["physical_offset"][inside].astype(np.int64) - start, units["key_hash"][inside])
        order = np.argsort(expected, kind="stable")
        at = np.searchsorted(expected[order], stored)
        known = at < len(order)
        known[known] = expected[order][at[known]] == stored[known]
        rows = np.flatnonzero(inside)
        matched = rows[known]
        key_rows = order[at[known]]
        begins = self._units.begin_timestamps(first, len(units))
        self._compare_seconds(unit_numbers[matched], units[matched], keys.store_timestamps[key_rows], begins[matched])
        surplus = matched[_repeats(stored[known], expected)]
        self._add("index.duplicate-unit", {"problem": "repeated"}, unit_numbers[surplus])
        lacking = ~np.isin(expected, stored)
        if not self._tags_expected:
            lacking &= keys.kinds != TAGS
        self._miss(self._without_optional(lacking, keys, records), keys)
        self._suspect_repeated(units, units["physical_offset"][surplus], keys.physical_offsets[lacking])
        others = np.ones(len(units), dtype=np.bool_)
        others[matched] = False
        self._explain(unit_numbers[others], units[others], units)

    def _suspect_repeated(
        self, units: NDArray[np.void], repeated: NDArray[np.int64], lacking: NDArray[np.int64]
    ) -> None:
        """Suspect messages with a hash that is repeated and a key that is missing: two keys may have had one hash."""
        for offset in np.intersect1d(repeated, lacking)[:MAX_SUSPECTS].tolist():
            self._suspects.add_keys(offset, units["key_hash"][units["physical_offset"] == offset].tolist())

    def _window(self, stop: int) -> NDArray[np.void]:
        """The next units that point before physical offset `stop`."""
        blocks: list[NDArray[np.void]] = []
        at = self._at
        while at < self._stop:
            units = self._units.read(at, min(_CHUNK, self._stop - at))
            if not len(units):
                break
            beyond = units["physical_offset"] >= stop
            ended = _first_run(beyond, _AHEAD)
            blocks.append(units[:ended])
            if ended < len(units):
                break
            at += len(units)
        return np.concatenate(blocks) if blocks else self._units.read(self._at, 0)

    def _explain(self, unit_numbers: NDArray[np.intp], units: NDArray[np.void], around: NDArray[np.void]) -> None:
        """Report units that match no expected key; `around` are all units of their messages."""
        reasons = [self._extents.reason_at(offset) for offset in units["physical_offset"].tolist()]
        in_damage = units[[reason not in _NO_DAMAGE for reason in reasons]]
        if len(in_damage):
            self._count_in_damage(self._once(in_damage))
            self._note_wrong_magic(self._once(units[[reason in WRONG_MAGIC for reason in reasons]]))
        for unit_number, unit, reason in zip(unit_numbers.tolist(), units, reasons, strict=True):
            offset = int(unit["physical_offset"])
            if 0 <= offset < self._log_start or reason not in (None, *UNSOUND_FIELDS):
                continue
            try:
                hashes = self._lookups.hashes_at(offset)
            except UnreadableError:
                continue
            code, problem, facts = "index.unit", "no-record", dict[str, int]()
            if hashes is not None and int(unit["key_hash"]) in hashes:
                code, problem = "index.duplicate-unit", "out-of-order"
            elif hashes is not None:
                if self._lookups.is_older_key(offset, int(unit["key_hash"])):
                    continue
                of_message = around["key_hash"][around["physical_offset"] == offset]
                self._suspects.add_keys(offset, of_message.tolist())
                if reason is not None:
                    continue
                problem, facts = "other-key", {"found": int(unit["key_hash"])}
            of_unit = {"problem": problem, "physical_offset": offset, **facts}
            self._add(code, of_unit, np.array([unit_number]))

    def _once(self, units: NDArray[np.void]) -> NDArray[np.void]:
        """Units of damage without those of keys that a message has twice, where it can be read in spite of it."""
        kept = np.ones(len(units), dtype=np.bool_)
        pairs, counts = np.unique(units[["physical_offset", "key_hash"]], return_counts=True)
        for offset, key_hash in pairs[counts > 1].tolist():
            derived = self._lookups.with_wrong_magic_code(offset)
            keys = self._lookups.keys_of_hash(offset, key_hash)
            keys = derived.keys.hashes_without_tags.count(key_hash) if derived else keys
            same = np.flatnonzero((units["physical_offset"] == offset) & (units["key_hash"] == key_hash))
            kept[same[keys or len(same) :]] = False
        return units[kept]

    def _count_in_damage(self, units: NDArray[np.void]) -> None:
        """Count units of messages that are damaged; where the index holds tags, one of each message is of its tags."""
        is_left = np.ones(len(units), dtype=np.bool_)
        for offset in np.unique(units["physical_offset"]).tolist():
            if self._extents.reason_of(offset) == _LENGTHS and (keys := self._keys_of_oversized(offset)):
                of_message = units["physical_offset"] == offset
                is_left &= ~of_message
                found, lost = (int(np.isin(units["key_hash"][of_message], [*each]).sum()) for each in keys)
                self._tally.oversized.extend([offset] * found)
                self._tally.in_damage += lost
        _add_in_damage(units[is_left], self._tally, has_tags=self._tags_expected)

    def _keys_of_oversized(self, offset: int) -> tuple[Set[int], Set[int]] | None:
        """The hashes of keys with which queries find a record that says too large a size, and of its others."""
        with suppress(UnreadableError):
            found = self._lookups.oversized(offset)
            return found and (found.keys, found.keys_lost)
        return None

    def _note_wrong_magic(self, units: NDArray[np.void]) -> None:
        """Note keys of messages that are whole but for their magic code; releases that put tags check it."""
        for unit in units[: 0 if self._tags_expected else max(0, _MAX_WRONG_MAGIC - len(self._tally.wrong_magic))]:
            offset = int(unit["physical_offset"])
            derived = self._lookups.with_wrong_magic_code(offset)
            if derived and int(unit["key_hash"]) in derived.keys.hashes_without_tags:
                self._tally.wrong_magic.append(offset)

    def _are_damaged(self, keys: IndexKeys) -> NDArray[np.bool_]:
        """Which keys are those of records that are not whole."""
        return np.isin(keys.rows, self._not_whole)

    def _miss(self, rows: NDArray[np.bool_], keys: IndexKeys) -> None:
        if self._live and self._at >= self._stop:
            return  # a running broker puts them later
        are_tags = keys.kinds == TAGS
        tags = rows & are_tags  # older releases put none
        if tags.any():
            first = int(keys.physical_offsets[int(np.argmax(tags))])
            count = int(np.count_nonzero(tags))
            _report_missing(self._report, count, first, severity="info", effect=_TAGS_NOT_FOUND)
        rows &= keys.are_found
        if len(self._not_whole) and rows.any():
            rows &= ~self._are_damaged(keys)  # which are lost anyway
        self._tally.miss(keys.physical_offsets[rows])

    def _without_optional(self, rows: NDArray[np.bool_], keys: IndexKeys, records: RecordRun) -> NDArray[np.bool_]:
        """`rows` without keys that an older release did not put; not for many rows, most of which are lost then."""
        missing = np.count_nonzero(rows & (keys.kinds != TAGS))
        older = self._lookups.older_keys(records) if 0 < missing <= _FEW else None
        if older is None:
            return rows
        start = records.physical_offset
        put = np.isin(
            _codes(keys.physical_offsets - start, keys.key_hashes),
            _codes(older.physical_offsets - start, older.key_hashes),
        )
        kept: NDArray[np.bool_] = rows & (put | (keys.kinds == TAGS))
        return kept

    def _add(self, code: str, facts: Mapping[str, Any], unit_numbers: NDArray[np.intp]) -> None:
        count = len(unit_numbers)
        if not count or not self._report.wants_example(code):
            self._report.count(code, count)
            return
        index_file = self._units.file_of(int(unit_numbers[0]))
        own = int(unit_numbers[0]) - index_file.start + 1
        position = unit_position(index_file.geometry.slots, own)
        self._report.add(code, count=count, file=self._store.relative(index_file.file.path), offset=position,
                         details={"unit": own, "others": count - 1, **facts})  # fmt: skip


def _codes(offsets: NDArray[np.int64], hashes: NDArray[np.int32]) -> NDArray[np.int64]:
    """Offset within the run and hash as one unique number, since a run is smaller than 4 GiB."""
    return (offsets << _HASH_BITS) | hashes.astype(np.int64)


def _repeats(stored: NDArray[np.int64], expected: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The rows of `stored` codes beyond their count in `expected`."""
    order = np.argsort(stored, kind="stable")
    ordered = stored[order]
    nth = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    wanted = np.sort(expected)
    allowed = np.searchsorted(wanted, ordered, "right") - np.searchsorted(wanted, ordered, "left")
    result = np.zeros(len(stored), dtype=np.bool_)
    result[order] = nth >= allowed
    return result


def _first_run(rows: NDArray[np.bool_], length: int) -> int:
    """Index of the first `length` consecutive true rows; rows past the end count as true."""
    runs = rows.copy()
    for step in range(1, length):
        runs[:-step] &= rows[step:]
    return int(np.argmax(runs)) if runs.any() else len(rows)


def check_missing_keys(
    reader: StoreReader,
    keys: KeyTally,
    after: IndexAfter | None,
    switched_off: str | None,
    report: Report,
    *,
    is_unknown: bool,
) -> None:
    """Report keys without a unit; those that the next start puts again (`after`) are information.

    So are all keys if the broker was killed and it `is_unknown` which ones a start puts again. `switched_off` is the
    setting with which brokers write no index, or None.
    """
    problem = "keys" if reader.index.files else _without_units(reader)
    renamed = [offset for offset in keys.renamed if after is not None and after.puts_again(offset)]
    if renamed and not reader.index.files and switched_off is None:
        _report_missing(report, len(renamed), renamed[0], problem, effect=_PUT_UNDER_ANOTHER)
    for offset, count in keys.runs_missing():
        effect = None
        if switched_off is not None:
            effect = f"none of its own: with {switched_off}=false no index file is written"
        elif after is not None and after.puts_again(offset):
            effect = _PUT_AGAIN
        elif is_unknown:
            effect = _UNKNOWN
        given = {"severity": "info", "effect": effect} if effect else {}
        _report_missing(report, count, offset, problem, **given)


def _without_units(reader: StoreReader) -> str:
    with skip_unreadable():
        if index_paths(reader.store):
            return "unknown-units"
    return "no-file"


def _report_missing(report: Report, count: int, offset: int, problem: str = "keys", **given: str) -> None:
    details = {"problem": problem, "keys": count, "physical_offset": offset}
    report.add("index.missing", count=count, details=details, **given)


def check_index_end(snapshot: Snapshot, reader: StoreReader, total: PartResult) -> None:
    """Check the units after those of all messages; `total` is the result of all parts of the log.

    Units that point past the last log file, or to bytes that have taken the place of records after the last one, show
    keys that the store has had, unless they are of another log.
    """
    IndexCheck(reader, total, total.boundary.index_at).finish(total.log_end or 0)
    files_end = snapshot.log.files[-1].end_offset if snapshot.log.files else snapshot.log_began_by
    gone_from = total.extents.replaced_from(total.log_end, files_end) if total.log_end is not None else files_end
    past = [file for file in reader.index.files if file.units and file.file.end_physical_offset >= gone_from]
    of_another = index_of_another_log(snapshot) if past else ()
    for file in past:
        if file.file.path not in of_another:
            _count_past(reader, file, gone_from, total.keys)


def _count_past(reader: StoreReader, file: FileUnits, gone_from: int, tally: KeyTally) -> None:
    """Count the units of a file that point to where the log has nothing of what it had, without those of tags."""
    for first in range(file.start, file.start + file.units, _CHUNK):
        units = reader.index.read(first, min(_CHUNK, file.start + file.units - first))
        _add_in_damage(units[units["physical_offset"] >= gone_from], tally, has_tags=reader.task.tags_expected)


def _add_in_damage(units: NDArray[np.void], tally: KeyTally, *, has_tags: bool) -> None:
    """Count units of messages of which only damage is left, of tags one of each: that of a single one is of a key.

    Only an op message of a transaction has nothing but tags.
    """
    tally.in_damage += len(units)
    if has_tags:
        offsets, message, counts = np.unique(units["physical_offset"], return_inverse=True, return_counts=True)
        of_op = (counts[message] == 1) & (units["key_hash"] == _TAGS_OF_OP)
        tally.with_tags.extend(offsets[counts > 1].tolist())
        tally.in_damage -= int(np.count_nonzero(counts > 1)) + int(np.count_nonzero(of_op))
