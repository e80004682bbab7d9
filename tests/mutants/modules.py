"""The modules that decide what is said of a store or done to it, with the tests that are theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Decides:
    """A module, or some `functions` of it, and its tests; those with a mark that makes them long only where `slow`.

    `same` are changes that mean the same, and why, by statement and change.
    """

    what: str
    path: str
    tests: tuple[str, ...]
    functions: tuple[str, ...] = ()
    same: Mapping[tuple[str, str], str] = field(default_factory=dict)
    slow: tuple[str, ...] = ()


_SEARCHED = "if self.min_position >= self.end or low > high or (start >= 0 and self.offsets[low] >= log_min_offset):"

MODULES: Mapping[str, Decides] = {
    "verdict": Decides("the verdict", "rmqtool/findings/report.py", ("tests/findings",)),
    "minimum": Decides(
        "the minimum offset of a queue",
        "rmqtool/store/queue_units.py",
        ("tests/store/test_queue_minimum.py", "tests/store/test_queue_range.py"),
        (
            "queue_range",
            "_range_in_files",
            "moved_range",
            "_rocksdb_range",
            "_simple_range",
            "_batch_range",
            "is_expired",
            "min_offset",
            "_search",
            "batch_min_offset",
            "end_of_batch",
            "rows_min_offset",
            "_first_at",
        ),
        {
            ("if written <= 0:", "0  ->  1"): "a queue of one unit is read again",
            ("if written <= 0:", "written <= 0  ->  written < 0"): "a queue of no unit is read by the other way",
            (_SEARCHED, "0  ->  1"): "the first unit is found, and is where the minimum was",
            (
                _SEARCHED,
                "self.offsets[low] >= log_min_offset  ->  self.offsets[low] > log_min_offset",
            ): "the unit at the minimum so far is found, and is where it was",
            ("while high - low > 1:", "1  ->  2"): "the last three units are read one by one",
            (
                "if physical_offset is None or physical_offset < log_min_offset:",
                "physical_offset < log_min_offset  ->  physical_offset <= log_min_offset",
            ): "where it is equal, it has been returned before",
            (
                "if queue.kind == 'simple' and files and (known.last_physical_offset is not None):",
                "known.last_physical_offset is not None  ->  known.last_physical_offset is None",
            ): "the end is read again, and is the same",
            (
                "if self.min_position < self.end and self.is_expired(log_min_offset):",
                "self.min_position < self.end  ->  self.min_position <= self.end",
            ): "the minimum is where the queue ends",
            (
                "low, high = (max(0, start) // UNIT_SIZE, len(self.offsets) - 1)",
                "0  ->  1",
            ): "a byte is no unit",
            (
                "if self.min_position >= self.end or low > high or (start >= 0 and self.offsets[low] >= "
                "log_min_offset):",
                "self.min_position >= self.end  ->  self.min_position > self.end",
            ): "the unit after the last one is not looked for",
            (
                "if self.min_position >= self.end or low > high or (start >= 0 and self.offsets[low] >= "
                "log_min_offset):",
                "start >= 0  ->  start > 0",
            ): "the first unit is found, and is where the minimum was",
            (
                "units_left = known.max_offset - files[0].start_offset // queue.unit_size",
                "files[0].start_offset // queue.unit_size  ->  files[0].start_offset * queue.unit_size",
            ): "the end is read again, and is the same",
        },
    ),
    "retention": Decides(
        "what the cleaner's settings are",
        "rmqtool/rules/retention.py",
        ("tests/rules/test_retention.py",),
        same={("return round(fraction * 100, 6)", "6  ->  7"): "no percentage is given to seven places"},
    ),
    "recovery": Decides(
        "what a start recovers",
        "rmqtool/broker/recovery.py",
        (
            "tests/broker/test_recovery.py",
            "tests/broker/test_rocksdb_recovery.py",
            "tests/broker/test_twice_recovery.py",
            "tests/broker/test_queue_simulation.py",
            "tests/verify/test_settings.py",
        ),
        same={
            (
                "if max_physical >= cut.end.offset and (not any((walk.broker_only_records for walk in walked))):",
                "max_physical >= cut.end.offset  ->  max_physical > cut.end.offset",
            ): "records are read of which none is dispatched",
            (
                "walked = (self._walks.of(file) for file in cut.files[cut.first:cut.end.file_number + 1])",
                "1  ->  2",
            ): "the same files are dispatched, or none of their records",
            (
                "return replace(outline, max_offset_after=0, end='there is no commit log file' if elsewhere is None "
                "else f'it opens another directory, {elsewhere!r}', setting=None if elsewhere is None else "
                "LOG_SETTING, messages_lost=lost, files_deleted=self._deleted([], queues, outline.mode, "
                "self._checkpoint(None)), queues=list(self._changes(queues, -1)))",
                "1  ->  2",
            ): "no offset is as low",
            (
                "return self.snapshot.store.is_of_rocksdb_type and self.rules.version >= ROCKSDB_QUEUES and (not "
                "self.in_rocksdb)",
                "self.rules.version >= ROCKSDB_QUEUES  ->  self.rules.version > ROCKSDB_QUEUES",
            ): "a clean start of that release dispatches nothing",
            (
                "before = max(queues.max_physical, 0 if self._makes_database else -1)",
                "1  ->  2",
            ): "no offset is as low",
            (
                "start = self.loaded.files[0].start_offset if self.loaded.files else 0",
                "0  ->  1",
            ): "without a log file no entry is made",
            (
                "for key in sorted(keys, key=lambda key: (key[1], key[2], key[0])):",
                "0  ->  1",
            ): "a queue of two kinds is named twice, in either order",
            (
                "keys = {*queues.touched(), *(recovered.keys() if all_move else recovered.with_fewer_files())}",
                "recovered.keys() if all_move else recovered.with_fewer_files()  ->  recovered.keys()",
            ): "what does not move is left out",
        },
    ),
    "queues": Decides(
        "which queue entries a start cuts",
        "rmqtool/broker/queue_recovery.py",
        (
            "tests/broker/test_queue_simulation.py",
            "tests/broker/test_recovered_queues.py",
            "tests/broker/test_recovery.py",
        ),
        same={
            (
                "first = int(np.searchsorted(offsets + (sizes if self._remembers_ends else 0), self.max_physical, "
                "'right'))",
                "sizes if self._remembers_ends else 0  ->  sizes",
            ): "the last known record is looked at again, and skipped",
            (
                "count = self._following(queue_offsets[first:]) if self.kind == 'simple' else 0",
                "self._following(queue_offsets[first:]) if self.kind == 'simple' else 0  ->  0",
            ): "records are appended one by one, which takes longer",
            ("return RecoveredQueue(queue, (), (), 0, None, -1)", "0  ->  1"): "units in no file are not asked for",
            ("return RecoveredQueue(queue, (), (), 0, None, -1)", "1  ->  2"): "no offset is as low",
            ("piece = min(4 * piece, _PIECE_UNITS)", "min  ->  max"): "more units are read at once",
            ("piece = min(4 * piece, _PIECE_UNITS)", "4  ->  5"): "more units are read at once",
            ("self._appended_end = 0", "0  ->  1"): "no unit ends at either position",
            ("self._below_until = 0", "0  ->  1"): "the first unit that is appended sets it",
            (
                "below = count_leading(offsets[first:last + 1] < self._log_start)",
                "1  ->  2",
            ): "the unit that is appended next is before the log, too, and is not counted again",
            (
                "self._set(units, base, self._first_appended, self._below_until, 0)",
                "0  ->  1",
            ): "no unit is before a log that begins at one byte",
            (
                "return max(0, self.end - self._appended_end) // self.unit if self.appended and self.kind == 'simple' "
                "else 0",
                "0  ->  1",
            ): "a byte is no unit",
            (
                "return int(self._content(self._files[-1], self._wrote // self.unit - 1, 1)['physical_offset'][0])",
                "1  ->  2",
            ): "the unit after it is read, too",
            ("self._wrote, self._highest = (0, -1)", "1  ->  2"): "no offset is as low",
            (
                "if not self._files or self._wrote >= self._file_size:",
                "self._wrote >= self._file_size  ->  self._wrote > self._file_size",
            ): "a full file has no room",
            (
                "if count > 1 and int(offsets[first + count - 1]) < self._log_end:",
                "count > 1  ->  count >= 1",
            ): "one record is a run, too",
            (
                "if count > 1 and int(offsets[first + count - 1]) < self._log_end:",
                "1  ->  2",
            ): "two records are appended one by one",
            ("units['message_size'][rows] = 1", "1  ->  2"): "either is a size",
            ("units['batch_size'][rows] = 1", "1  ->  2"): "either is a size",
            (
                "written, last, highest, piece = (0, None, -1, HEAD_UNITS)",
                "1  ->  2",
            ): "no offset is as low",
            (
                "return 0",
                "return 0  ->  return None",
            ): "bytes in no file are not asked for",
            (
                "return 0",
                "0  ->  1",
            ): "bytes in no file are not asked for, and one record is no run",
            (
                "self._min_position = 0",
                "0  ->  1",
            ): "no unit begins at either position",
            (
                "self._pre_blank_end = 0",
                "0  ->  1",
            ): "no unit ends at either position",
            (
                "self._appended_batches_end = 0",
                "0  ->  1",
            ): "it is set before it is asked for",
            (
                "first = int(np.searchsorted(offsets + (sizes if self._remembers_ends else 0), self.max_physical, "
                "'right'))",
                "0  ->  1",
            ): "the last known record is looked at again, and skipped",
            (
                "count = self._following(queue_offsets[first:]) if self.kind == 'simple' else 0",
                "self.kind == 'simple'  ->  self.kind != 'simple'",
            ): "records are appended one by one",
            (
                "count = self._following(queue_offsets[first:]) if self.kind == 'simple' else 0",
                "0  ->  1",
            ): "one record is no run",
            (
                "self.undone += max(0, self._appended_end - max(self.end, self._first_appended)) // self.unit",
                "0  ->  1",
            ): "a byte is no unit",
            (
                "if not self._files or self._wrote >= self._file_size:",
                "self._wrote >= self._file_size  ->  self._wrote < self._file_size",
            ): "records are appended one by one",
            (
                "follow = head == self.end // self.unit + np.arange(len(head))",
                "self.end // self.unit + np.arange(len(head))  ->  self.end // self.unit - np.arange(len(head))",
            ): "records are appended one by one",
            (
                "follow = head == self.end // self.unit + np.arange(len(head))",
                "self.end // self.unit  ->  self.end * self.unit",
            ): "records are appended one by one",
            (
                "return False",
                "return False  ->  return None",
            ): "neither is true",
            (
                "ends_here = file.mapped is None and file is self._files[-1]",
                "file is self._files[-1]  ->  file is not self._files[-1]",
            ): "zeros follow in a file that is not on disk",
            (
                "count = (wrote if ends_here else self._file_size) // self.unit",
                "wrote if ends_here else self._file_size  ->  self._file_size",
            ): "zeros follow in a file that is not on disk",
            (
                "if self._is_made and self._pre_blank_end > base:",
                "self._is_made and self._pre_blank_end > base  ->  self._is_made or self._pre_blank_end > base",
            ): "there is no filler, or none in this file",
            (
                "if self._is_made and self._pre_blank_end > base:",
                "self._pre_blank_end > base  ->  self._pre_blank_end >= base",
            ): "there is no filler in this file",
            (
                "self._set(units, base, self._first_appended, self._appended_end, self._log_end - 1)",
                "1  ->  2",
            ): "either is within the log",
        },
    ),
    "dispatch": Decides(
        "which entries and keys a record gives",
        "rmqtool/broker/dispatcher.py",
        ("tests/broker/test_dispatch_rules.py", "tests/broker/test_dispatcher.py"),
        same={
            (
                "return KeyTexts(kept, values if len(kept) == len(values) else values.take(kept))",
                "values if len(kept) == len(values) else values.take(kept)  ->  values.take(kept)",
            ): "all of them are taken",
            (
                "return IndexKeys(*(np.concatenate([old[:low], new, old[high:]]) for old, new in "
                "zip(vars(keys).values(), vars(put).values(), strict=True)))",
                "True  ->  False",
            ): "both have the same fields",
            (
                "for topic, offset_text in zip(topics, offset_texts, strict=True):",
                "True  ->  False",
            ): "both are as long",
            ("if missing > 0:", "missing > 0  ->  missing >= 0"): "nothing is appended",
            (
                "self._in_batches = np.append(self._in_batches, np.array(new, dtype=np.bool_)) if new else "
                "self._in_batches",
                "np.append(self._in_batches, np.array(new, dtype=np.bool_)) if new else self._in_batches  ->  "
                "np.append(self._in_batches, np.array(new, dtype=np.bool_))",
            ): "nothing is appended",
            (
                "units = QueueUnits(queues=self._dispatcher.queue_numbers(self._topics, "
                "self._proven(fields('queue_id'), 'queue_id')), queue_offsets=bases, "
                "physical_offsets=frames.physical_offsets.astype(np.int64, copy=False), "
                "message_sizes=frames.message_sizes.astype(np.int32), tags_codes=self._tags_codes, "
                "tags_hashes=self._proven_hashes, store_timestamps=fields('store_timestamp'), batch_sizes=sizes, "
                "message_counts=counts, rows=np.arange(len(frames), dtype=np.int32))",
                "False  ->  True",
            ): "a copy is the same",
            (
                "padded = np.append(spaces, bounds[-1])",
                "1  ->  2",
            ): "what is appended is not read",
            (
                "bounds = np.frombuffer(offsets, np.int32)[:len(rows) + 1].astype(np.intp)",
                "1  ->  2",
            ): "Arrow's buffer ends there",
            (
                "kind = np.uint16 if len(all_rows) == 0 or int(all_rows.max()) >> 16 == 0 else np.uint32",
                "np.uint16 if len(all_rows) == 0 or int(all_rows.max()) >> 16 == 0 else np.uint32  ->  np.uint32",
            ): "larger numbers are sorted more slowly",
            (
                "self._prefixes = np.empty((2, 0), dtype=np.uint32)",
                "0  ->  1",
            ): "there is room for one topic more",
            (
                "missing = len(self.topics) - len(self._has_prefixes)",
                "len(self.topics) - len(self._has_prefixes)  ->  len(self.topics) + len(self._has_prefixes)",
            ): "there is room for more topics",
            (
                "if self._plain_topics and in_batches.any():",
                "self._plain_topics and in_batches.any()  ->  self._plain_topics or in_batches.any()",
            ): "no topic is plain, or no record has the flag",
            (
                "self.proven_rows: dict[int, ProvenRecord] = dispatcher.proven.rows_of(frames) if "
                "dispatcher.proven else {}",
                "dispatcher.proven.rows_of(frames) if dispatcher.proven else {}  ->  dispatcher.proven.rows_of(frames)",
            ): "no row is proven",
            (
                "numbers = zip(self.units.queues.tolist(), self.units.queue_offsets.tolist(), strict=True)",
                "True  ->  False",
            ): "both are as long",
            (
                "for row in np.flatnonzero(dispatched & (queues_of.sizes > 0) & (offsets_of.sizes > 0)).tolist():",
                "queues_of.sizes > 0  ->  queues_of.sizes >= 0",
            ): "lists of different lengths are not read",
            (
                "for row in np.flatnonzero(dispatched & (queues_of.sizes > 0) & (offsets_of.sizes > 0)).tolist():",
                "offsets_of.sizes > 0  ->  offsets_of.sizes >= 0",
            ): "lists of different lengths are not read",
            (
                "keys = IndexKeys(hashes, self._frames.physical_offsets.take(rows).astype(np.int64, copy=False), "
                "self._frames.headers.field('store_timestamp').take(rows), kinds, rows.astype(np.int32))",
                "False  ->  True",
            ): "a copy is the same",
            (
                "codes = self._tags_hashes.copy() if len(rows) else self._tags_hashes",
                "self._tags_hashes.copy() if len(rows) else self._tags_hashes  ->  self._tags_hashes.copy()",
            ): "a copy is the same",
            (
                "for row in rows[(queues_of.sizes[rows] > 0) & (offsets_of.sizes[rows] > 0)].tolist():",
                "(queues_of.sizes[rows] > 0) & (offsets_of.sizes[rows] > 0)  ->  (queues_of.sizes[rows] > 0) | "
                "(offsets_of.sizes[rows] > 0)",
            ): "lists of different lengths are not read",
            (
                "for row in rows[(queues_of.sizes[rows] > 0) & (offsets_of.sizes[rows] > 0)].tolist():",
                "queues_of.sizes[rows] > 0  ->  queues_of.sizes[rows] >= 0",
            ): "lists of different lengths are not read",
            (
                "for row in rows[(queues_of.sizes[rows] > 0) & (offsets_of.sizes[rows] > 0)].tolist():",
                "offsets_of.sizes[rows] > 0  ->  offsets_of.sizes[rows] >= 0",
            ): "lists of different lengths are not read",
        },
    ),
    "plan": Decides(
        "what a repair does",
        "rmqtool/repair/plan.py",
        ("tests/repair/test_plan.py", "tests/repair/test_clients_after.py", "tests/repair/test_reach.py"),
        same={
            (
                "unhealed = unhealed_config(found.get('config', ()), repairs.changes, offsets=True)",
                "True  ->  False",
            ): "the reasons are not asked for",
        },
    ),
    "diagnosis": Decides(
        "which repair treats a finding",
        "rmqtool/repair/diagnosis.py",
        ("tests/repair/test_clients_after.py", "tests/repair/test_plan.py", "tests/repair/test_reach.py"),
        same={
            (
                "left = unhealed_config(diagnosis.findings, repairs.changes, offsets=False)",
                "False  ->  True",
            ): "the reasons are not asked for",
            (
                "given = zip(self.options[::2], self.options[1::2], strict=True)",
                "True  ->  False",
            ): "each option has a value",
            (
                "return False",
                "return False  ->  return None",
            ): "neither is true",
        },
    ),
    "clean": Decides(
        "which files the cleaner deletes",
        "rmqtool/broker/cleaner.py",
        (
            "tests/broker/test_log_deletion.py",
            "tests/broker/test_queue_cleaner.py",
            "tests/broker/test_queue_deletion.py",
            "tests/clean/test_dledger.py",
            "tests/clean/test_plan.py",
            "tests/clean/test_rocksdb.py",
        ),
        same={
            (
                "if self._version < EXPIRED_QUEUE_MIN_IS_MAX and last is not None and (last < final):",
                "self._version < EXPIRED_QUEUE_MIN_IS_MAX  ->  self._version <= EXPIRED_QUEUE_MIN_IS_MAX",
            ): "the minimum of a queue that has expired is its maximum, wherever it was before",
            (
                "if self._version < EXPIRED_QUEUE_MIN_IS_MAX and last is not None and (last < final):",
                "last < final  ->  last <= final",
            ): "where they are equal, the last run finds the last unit",
        },
    ),
    "transaction": Decides(
        "how files change",
        "rmqtool/transaction/transaction.py",
        (
            "tests/transaction/test_staged.py",
            "tests/transaction/test_transaction.py",
            "tests/transaction/test_full_disk.py",
            "tests/transaction/test_faults.py",
            "tests/transaction/test_losses.py",
            "tests/transaction/test_newcomers.py",
            "tests/transaction/test_power.py",
        ),
        same={
            ("self._journaled = True", "True  ->  False"): "nothing is left of what was staged",
            (
                "if self._staging and (not self._journaled):",
                "self._staging and (not self._journaled)  ->  self._staging or not self._journaled",
            ): "nothing is left of what was staged, or nothing was",
            (
                "after = manifest_of(self._system, staging.path(name)) if staged else None",
                "manifest_of(self._system, staging.path(name)) if staged else None  ->  "
                "manifest_of(self._system, staging.path(name))",
            ): "nothing is staged in the place of what is removed",
        },
        slow=(
            "tests/transaction/test_faults.py::test_fault_at_the_calls_of_a_transaction[kill-before-repair-all]",
            "tests/transaction/test_faults.py::test_fault_at_the_calls_of_a_deletion[kill-before]",
            "tests/transaction/test_power.py::test_power_fails_during_a_transaction_and_its_undo[repair-one-all]",
        ),
    ),
    "clients": Decides(
        "what consumers get of a queue",
        "rmqtool/clients/queue_view.py",
        ("tests/clients/test_queue_view.py", "tests/query/test_holes.py"),
        same={
            (
                "rows = stored.database.units((stored.topic, stored.queue_id), start, stop, 2 * MOST_UNITS)",
                "2  ->  3",
            ): "so many rows past the end of the queue are left out; of fewer than eight million none is",
            (
                "if low >= self._sample.begin:",
                "low >= self._sample.begin  ->  low > self._sample.begin",
            ): "the same part of the log is read again",
            (
                "return self._after_start(name, holes) if holes else QueueView()",
                "self._after_start(name, holes) if holes else QueueView()  ->  self._after_start(name, holes)",
            ): "without a hole nothing is derived",
            (
                "queues = {name: LoggedMessages(*(np.concatenate(columns) for columns in zip(*parts, strict=True))) "
                "for name, parts in found.items()}",
                "True  ->  False",
            ): "all have the same columns",
            (
                "if queue is None or not queue.queue.files.file_size > _SEARCHED:",
                "queue.queue.files.file_size > _SEARCHED  ->  queue.queue.files.file_size >= _SEARCHED",
            ): "the end is the same",
            (
                "target = int(entries.targets[-1]) if entries else -1",
                "1  ->  2",
            ): "no offset is as low",
            (
                "sound = (targets >= low) & (targets < high) & (sizes > 0) & ~is_pre_blank(rows)",
                "0  ->  1",
            ): "no message is as small",
            (
                "if entries and int(entries.offsets[0]) > start:",
                "int(entries.offsets[0]) > start  ->  int(entries.offsets[0]) >= start",
            ): "no queue offset is between",
            (
                "if _end_of(entries, before, start) < entries.offsets[before + 1]:",
                "_end_of(entries, before, start) < entries.offsets[before + 1]  ->  _end_of(entries, before, "
                "start) <= entries.offsets[before + 1]",
            ): "no queue offset is between",
            (
                "return (_Entries(*(np.zeros(0, np.int64) for _ in _Entries._fields)), end, True)",
                "True  ->  False",
            ): "none are left out of none",
        },
        slow=(
            "tests/query/test_holes.py::test_as_verify[4.9.7-clean",
            "tests/query/test_holes.py::test_rows_as_verify",
            "tests/query/test_holes.py::test_batches_as_verify[5.5.1-clean",
        ),
    ),
}
