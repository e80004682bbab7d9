"""A salvage or a conversion as JSON and for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rmqtool.base.errors import Exit
from rmqtool.base.numbers import Count, Long, byte_size
from rmqtool.findings.finding import Finding, counted
from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.salvage.conversion import LEFT_MEANINGS, ConversionPlan
from rmqtool.salvage.layout import MEANINGS, Left
from rmqtool.salvage.layout import Reason as LeftReason
from rmqtool.salvage.new_store import Carried
from rmqtool.salvage.plan import MAX_GAPS, SalvagePlan
from rmqtool.salvage.selection import Chosen, SelectedLog, Selection, needed_bytes
from rmqtool.salvage.write_log import MovedLog
from rmqtool.show.output import Style, print_lines, show_finding, show_rows, show_table, table
from rmqtool.show.shapes import Error, FiltersGiven, Shape, at, by
from rmqtool.transaction.losses import OFFSET_MAP

if TYPE_CHECKING:
    from rich.console import Console

SalvageState = Literal["planned", "done", "nothing"]


@dataclass(frozen=True)
class Choice:
    """What was chosen; `log` is what was written of it, `not_carried` what of the sources no such store can have."""

    selection: Selection
    chosen: Chosen
    not_carried: Sequence[str] = ()
    log: SelectedLog | None = None

    @property
    def needed(self) -> int:
        """About how many bytes the new store takes."""
        return needed_bytes(self.chosen, self.selection)


@dataclass(frozen=True)
class Salvaged:
    """What was planned or done; `rebuild` is what was derived from the new log, None before it is written.

    Of messages that move `not_carried` are the files that hold physical offsets, `moved` is their log once written.
    """

    plan: SalvagePlan
    carried: Sequence[Carried]
    rebuild: RebuildPlan | None = None
    choice: Choice | None = None
    not_carried: Sequence[str] = ()
    moved: MovedLog | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return self.plan.is_empty or (self.choice is not None and not self.choice.chosen.messages)

    @property
    def state(self) -> SalvageState:
        """What has become of the new store."""
        return "nothing" if self.is_empty else "done" if self.rebuild else "planned"

    @property
    def status(self) -> Exit:
        """The exit status."""
        if self.plan.is_unread or any(each.is_unread for each in self.carried):
            return Exit.LOSSY
        is_left = self.is_empty or self.plan.is_lossy or any(each.problem for each in self.carried)
        findings = self.rebuild.findings if self.rebuild else ()
        is_left = is_left or any(finding.severity == "error" for finding in findings)
        return Exit.FINDINGS if is_left else Exit.OK


def salvage_json(found: Salvaged, output: Path) -> dict[str, Any]:
    """The `result` of ``salvage SOURCE... --output NEW``."""
    return SalvageResult.of(found, _Place(found.rebuild, found.plan.inputs.names, output, found.plan))


class _Place(NamedTuple):
    """What was derived from a new log, the names of the sources, where the new store is, and the plan of a salvage."""

    rebuild: RebuildPlan | None
    names: Sequence[str]
    output: Path
    plan: Any = None

    def file(self, left: Left) -> Any:
        """The file in which bytes are left."""
        return self.plan.inputs.files[left.input]


class CarriedFile(Shape):
    """A file or directory beside the log."""

    name: str  # Its path, relative to the store.
    # The source that it is copied from; null if no source has it completely.
    source: str | None = by(lambda each, place: None if each.source is None else place.names[each.source])
    problem: str | None  # Why it was not copied; null if it was.


class NewQueue(Shape):
    """A consume queue of the new store."""

    topic: str = at("name.topic")  # Topic.
    queue_id: Long = at("name.queue_id")  # Queue number.
    kind: Literal["simple", "batch", "rocksdb"]  # How its units are stored.
    units: Count  # Units, of a batch queue messages.
    min_offset: Long  # Minimum.
    max_offset: Long  # Maximum, exclusive.


def _derived(read: Any, default: Any) -> Any:
    """What `read` finds in what was derived from the new log, nothing before it is made."""
    return by(lambda _, place: read(place.rebuild) if place.rebuild else default)


class Derived(Shape):
    """What is derived from a new log."""

    # The consume queues; empty before anything is written.
    queues: list[NewQueue] = _derived(lambda rebuild: rebuild.queues, [])
    # Names of the index files; empty before anything is written.
    index: list[str] = _derived(lambda made: [file.name for file in made.index if file.action != "remove"], [])
    index_units: Count = _derived(lambda rebuild: rebuild.index_units, 0)  # Units in the index.


class Source(Shape):
    """One source, in the order in which they were given."""

    path: str = by(lambda number, place: place.names[number])  # Its path as given.
    # Files that were read: those of its commit log, or the one file.
    files: Count = by(lambda number, place: len(place.plan.inputs.of_source(number)))
    messages: Count = by(lambda number, place: place.plan.of_source(number)[0])  # Messages taken from it.
    bytes: Count = by(lambda number, place: place.plan.of_source(number)[1])  # Their size.


@dataclass(frozen=True)
class NewLog:
    """The new commit log."""

    file_size: Count  # Size of its files, bytes.
    file_size_known: bool  # broker.conf or the files of the sources show that size; otherwise it is the default.
    files: Count  # Its files; of a DLedger log about, until it is written.
    min_offset: Long  # Where it begins, bytes.
    max_offset: Long  # After its last message, bytes; of a DLedger log about, until it is written.
    messages: Count  # Messages in it.
    bytes: Count  # Their size.
    first_store_timestamp: Long | None  # Store time of the first message, epoch ms; null without one.
    last_store_timestamp: Long | None  # Store time of the last message, epoch ms; null without one.


def _new_log(plan: SalvagePlan, moved: MovedLog | None) -> NewLog:
    files, copies, file_size = plan.layout.files, plan.layout.copies, plan.layout.file_size
    end, count = int(copies["physical_offset"][-1] + copies["size"][-1]) if len(copies) else 0, len(files)
    if plan.layout.is_moved and files:
        start = files[0].start_offset
        end = moved.end if moved else start + plan.size + plan.lost
        count = (end - start + file_size - 1) // file_size
    first, last = (int(copies["first_time"][0]), int(copies["last_time"][-1])) if len(copies) else (None, None)
    start = files[0].start_offset if files else 0
    return NewLog(file_size, plan.is_size_known, count, start, end, plan.records, plan.size, first, last)


def _chosen_log(plan: SalvagePlan, chosen: Chosen) -> NewLog:
    log = chosen.placement
    return NewLog(plan.layout.file_size, plan.is_size_known, log.files, log.start, log.end,
                  chosen.messages, chosen.size, chosen.first_timestamp, chosen.last_timestamp)  # fmt: skip


class LostGap(Shape):
    """Lost bytes of the log, which dummy records fill."""

    physical_offset: Long  # Where it begins, bytes.
    size: Count  # How long it is, bytes.
    # Store time of the message before it, or of the first one after it, epoch ms.
    store_timestamp: Long = at("timestamp")


class LeftBytes(Shape):
    """Bytes of a source that are not in the new store."""

    source: str = by(lambda left, place: place.names[place.file(left).source])  # The source.
    file: str = by(lambda left, place: str(place.file(left).path))  # The file.
    position: Count  # Where they begin in the file, bytes.
    size: Count  # How many they are.
    # Why: bytes of the log with no verifiable message; bytes that the disk cannot read; whole records from before a
    # cut, or that differ from those saved at their offsets; records with a damaged field, of which another source has
    # the right copy (no loss); whole records next to a gap too small to be filled; whole records of another log; other
    # bytes of a file without the name of a log file.
    reason: LeftReason
    messages: Count = at("records")  # Whole messages among them.
    physical_offset: Long | None  # Where they belong in the log, bytes; null where nothing shows it.


class LeftTotal(Shape):
    """All that was left behind for one reason."""

    reason: LeftReason = by(lambda total, _: total[0])  # The reason.
    ranges: Count = by(lambda total, _: total[1].ranges)  # Ranges of bytes.
    bytes: Count = by(lambda total, _: total[1].size)  # Their size.
    messages: Count = by(lambda total, _: total[1].records)  # Whole messages in them.


class Dledger(Shape):
    """What the Raft indices of entries say."""

    # The greatest committed index in a node's checkpoint; null without one.
    committed_index: Long | None = at("inputs.committed")
    missing_messages: Count = at("committed_missing")  # Committed entries that are in no source.
    # Saved messages after the committed index: the leader of the group may have others there.
    uncommitted_messages: Count = at("uncommitted")


class RenumberedMessages(Shape):
    """Messages of a queue whose offsets follow each other."""

    topic: str = at("queue.topic")  # Topic.
    queue_id: Long = at("queue.queue_id")  # Queue number.
    old_queue_offset: Long = at("old_offset")  # Queue offset of the first of them in the source.
    new_queue_offset: Long = at("new_offset")  # Queue offset of the first of them in the new store.
    messages: Count  # How many.


class ChosenMessages(Shape):
    """What was chosen."""

    filters: FiltersGiven = at("choice.selection.filters")
    # Whether messages keep their queue offsets, or are counted again.
    queue_offsets: Literal["keep", "new"] = at("choice.selection.queue_offsets")
    # Messages that do not pass the filters.
    left_out_messages: Count = by(lambda found, _: found.plan.records - found.choice.chosen.messages)
    left_out_bytes: Count = by(lambda found, _: found.plan.size - found.choice.chosen.size)  # Their size.
    # Files and directories of the sources that contain physical offsets, or messages of all topics.
    not_carried_over: list[str] = by(lambda found, _: [*found.choice.not_carried])
    # The map from old to new queue offsets; null where they are kept, and before anything is written.
    offset_map_file: str | None = by(
        lambda found, place: str(place.output / OFFSET_MAP) if found.choice.log and found.choice.log.numbering else None
    )
    # All rows of the map.
    offset_map_rows: Count = by(lambda found, _: found.choice.log.map_rows if found.choice.log else 0)
    # The first 1000 rows of the map.
    offset_map: list[RenumberedMessages] = by(lambda found, _: found.choice.log.renumbered if found.choice.log else ())


class Saved(Shape):
    """What was saved, and what was not."""

    state: Literal["planned", "done", "nothing"]  # nothing: no message was found, and nothing is written.
    output: str = by(lambda _, place: str(place.output))  # The new store, as given.
    sources: list[Source] = by(lambda found, _: range(len(found.plan.inputs.names)))  # The sources.
    # The new commit log.
    commit_log: NewLog = by(lambda found, _: _chosen_log(found.plan, found.choice.chosen) if found.choice
                            else _new_log(found.plan, found.moved))  # fmt: skip
    # Which of the found messages were selected; null if all are saved in their places.
    selection: ChosenMessages | None = by(lambda found, _: found if found.choice else None)
    # What is lost of the log, at most 1000 of them.
    gaps: list[LostGap] = by(lambda found, _: found.plan.layout.gaps[:MAX_GAPS])
    gap_count: Count = by(lambda found, _: len(found.plan.layout.gaps))  # All gaps.
    gap_bytes: Count = at("plan.lost")  # Their size.
    left_behind: list[LeftBytes] = at("plan.left.listed")  # What is not saved, at most 1000 ranges.
    # All ranges, by reason.
    left_behind_totals: list[LeftTotal] = by(lambda found, _: sorted(found.plan.left.totals.items()))
    # Of a DLedger log, whose messages move; null of others.
    dledger: Dledger | None = by(lambda found, _: found.plan if found.plan.layout.is_moved else None)
    # Files and directories next to a DLedger log that contain physical offsets, and are not copied.
    not_carried_over: list[str] = by(lambda found, _: [*found.not_carried])
    carried_over: list[CarriedFile] = at("carried")  # Configuration and other files next to the log.


class _Needed(Shape):
    # Approximate size of the new store on the disk, without copied configuration.
    needed_bytes: Count = by(lambda found, _: found.choice.needed if found.choice else found.plan.needed)
    unread: list[Error] = at("plan.inputs.errors")  # Parts of the sources that cannot be read.


class SalvageResult(_Needed, Derived, Saved):
    """What was saved, and what was not."""


_MAX_ROWS = 20
_LOST = "rebuild.neutral-units"
_SHOWN = ("warning", "error")


def show_salvage(found: Salvaged, style: Style) -> None:
    """Show a plan, and what a rebuild has made of it; all ranges with -v."""
    console, plan, rebuild = style.console(), found.plan, found.rebuild
    most = None if style.verbosity > 0 else _MAX_ROWS
    _show_saved(plan, console, "saved" if found.choice is None else "found")
    print_lines(console, *_moved(found))
    if found.choice:
        _show_choice(plan, found.choice, console, most)
    _show_gaps(plan, console, most, is_filled=found.choice is None)
    _show_left(plan, console, most)
    _show_problems(console, found.carried)
    if rebuild:
        show_derived(rebuild, console, most)


def show_derived(rebuild: RebuildPlan, console: Console, most: int | None) -> None:
    """Show the queues and the index of a new store, and what is wrong with them."""
    queues, units = len(rebuild.queues), sum(queue.units for queue in rebuild.queues)
    print_lines(console, f"{counted(queues, 'consume queue')} with {counted(units, 'entry')}, "
                    f"index of {counted(rebuild.index_units, 'entry')}")  # fmt: skip
    findings = worth_showing(rebuild.findings)
    lost = [finding for finding in findings if finding.code == _LOST]
    for finding in findings:
        if finding.code != _LOST:
            show_finding(console, finding)
    if lost:
        count = sum(finding.count for finding in lost)
        messages = f"{counted(count, 'message')} of these queues {'is' if count == 1 else 'are'} lost"
        rows = [(finding.topic or "", finding.queue_id, finding.count) for finding in lost[:most]]
        title = f"{messages}; placeholders preserve the offsets of the others:"
        show_rows(console, title, "topic, queue>, lost>", rows)
        _show_more(console, len(lost) - len(rows))


def _show_choice(plan: SalvagePlan, choice: Choice, console: Console, most: int | None) -> None:
    chosen, log = choice.chosen, choice.log
    if not chosen.messages:
        print_lines(console, f"chosen: no message; left out: {counted(plan.records, 'message')}")
        return
    files = counted(chosen.placement.files, "log file")
    what = f"{counted(chosen.messages, 'message')}, {byte_size(chosen.size)}, in {files}"
    left_out = counted(plan.records - chosen.messages, "message")
    print_lines(console, f"chosen: {what}, from physical offset {chosen.placement.start} on; left out: {left_out}")
    if choice.not_carried:
        print_lines(console, f"not copied, because it has physical offsets: {', '.join(choice.not_carried)}")
    if log and log.map_rows:
        rows = [(*row.queue, row.old_offset, row.new_offset, row.messages) for row in log.renumbered[:most]]
        title = f"queue offsets are counted again; the old ones are in {OFFSET_MAP}"
        show_rows(console, title, "topic, queue>, old offset>, new offset>, messages>", rows)
        _show_more(console, log.map_rows - len(rows))


def worth_showing(findings: Sequence[Finding]) -> list[Finding]:
    """The findings of a rebuild above information."""
    return [finding for finding in findings if finding.severity in _SHOWN]


def _show_saved(plan: SalvagePlan, console: Console, word: str) -> None:
    where = "" if plan.layout.is_moved else f", in {counted(len(plan.layout.files), 'log file')}"
    title = f"{word}: {counted(plan.records, 'message')}, {byte_size(plan.size)}{where}"
    rows = [(name, *plan.of_source(number)) for number, name in enumerate(plan.inputs.names)]
    show_rows(console, title, "source, messages>, bytes>", rows)


def _moved(found: Salvaged) -> Iterator[str]:
    """What becomes of a DLedger log."""
    plan = found.plan
    if not plan.layout.is_moved or plan.is_empty:
        return
    if found.choice is None:
        yield "the headers of DLedger's entries are left out: messages move, and keep their queue offsets"
    if plan.committed_missing:
        missing = counted(plan.committed_missing, "committed message")
        yield f"missing: {missing}, by the Raft indices of the entries"
    if plan.uncommitted:
        behind = f"{counted(plan.uncommitted, 'message')} after the committed index {plan.inputs.committed}"
        yield f"saved with them: {behind}: the leader of the group may have other messages there"
    if found.not_carried:
        yield f"not copied, because it has physical offsets: {', '.join(found.not_carried)}"


def _show_gaps(plan: SalvagePlan, console: Console, most: int | None, *, is_filled: bool) -> None:
    gaps = plan.layout.gaps
    if not gaps:
        return
    title = f"lost: {byte_size(plan.lost)} of the log in {counted(len(gaps), 'gap')}"
    rows = [(gap.physical_offset, gap.size) for gap in gaps[:most]]
    show_rows(console, title + (", which dummy records fill" if is_filled else ""), "physical offset>, bytes>", rows)
    _show_more(console, len(gaps) - len(rows))


def _show_left(plan: SalvagePlan, console: Console, most: int | None) -> None:
    for reason, total in sorted(plan.left.totals.items()):
        messages = f", {counted(total.records, 'message')}" if total.records else ""
        size = f"{byte_size(total.size)} in {counted(total.ranges, 'range')}{messages}"
        print_lines(console, f"not copied: {size}: {MEANINGS[reason]}")
    rows = [
        (plan.inputs.files[left.input].path, left.position, left.size, left.reason, left.records,
         "" if left.physical_offset is None else left.physical_offset)
        for left in plan.left.listed[:most]
    ]  # fmt: skip
    if rows:
        show_table(console, table("", "file, position>, bytes>, reason, messages>, physical offset>", rows))
        _show_more(console, sum(total.ranges for total in plan.left.totals.values()) - len(rows))


def _show_problems(console: Console, carried: Sequence[Carried]) -> None:
    print_lines(console, *(f"not copied: {each.name}: {each.problem}" for each in carried if each.problem))


def _show_more(console: Console, count: int) -> None:
    if count > 0:
        print_lines(console, f"and {count} more (with -v, or with --json)")


ConvertState = Literal["planned", "done"]


class ConvertedLog(Shape):
    """The new commit log."""

    file_size: Count = at("conversion.file_size")  # Size of its files, bytes.
    files: Count  # Its files.
    # Those that are copied unchanged: all of a store with several paths; those from before DLedger.
    plain_files: Count = by(lambda plan, _: len(plan.conversion.plain))
    min_offset: Long = at("conversion.min_offset")  # Where it begins, bytes.
    max_offset: Long = at("end")  # After the last message of an entry, bytes; without entries after the last file.
    messages_of_entries: Count = at("messages")  # Messages taken out of DLedger entries.
    bytes_of_entries: Count = at("bytes")  # Their size.
    filled_bytes: Count  # Bytes of dummy records in place of lost entries.
    # Store time of the first message taken out of an entry, epoch ms; null without one.
    first_store_timestamp: Long | None = at("first_timestamp")
    last_store_timestamp: Long | None = at("last_timestamp")  # Store time of the last one, epoch ms; null without one.


class NotTaken(Shape):
    """An extent of the DLedger log that is not taken."""

    # Why: entries after the committed index, which another node may not have; whole entries of an earlier term, or of
    # an index that already occurred; bytes without an entry with a whole message.
    reason: Literal["uncommitted", "stale", "damaged"]
    physical_offset: Long  # Where its first message or byte is in the DLedger log.
    size: Count  # How many bytes it is long.
    messages: Count  # Whole messages in it.


class NotTakenTotal(Shape):
    """All that was left out for one reason."""

    reason: Literal["uncommitted", "stale", "damaged"] = by(lambda total, _: total[0])  # Why.
    extents: Count = by(lambda total, _: total[1].ranges)  # Extents.
    bytes: Count = by(lambda total, _: total[1].size)  # Their size.
    messages: Count = by(lambda total, _: total[1].records)  # Whole messages in them.


class Converted(NamedTuple):
    """A plan, what is carried over and left beside the log, what was derived, and the `older_queues` before the log."""

    plan: ConversionPlan
    carried: Sequence[Carried]
    left: Sequence[str]
    rebuild: RebuildPlan | None
    older_queues: int = 0


class ConvertedStore(Shape):
    """What was converted, and what was not."""

    state: ConvertState = by(lambda _, place: "done" if place.rebuild else "planned")  # Whether the new store is made.
    output: str = by(lambda _, place: str(place.output))  # The new store, as given.
    # What the store is: one of DLedger, also with plain log files from before; one with several commit log paths.
    layout: Literal["dledger", "multi-path"] = by(
        lambda found, _: "dledger" if found.plan.conversion.store.dledger_directory else "multi-path"
    )
    commit_log: ConvertedLog = at("plan")  # The new commit log.
    # Raft index up to which entries are copied; null for all, and also without a DLedger checkpoint.
    committed_index: Long | None = at("plan.conversion.committed")
    # Committed entries that are in no source, by their Raft indices, from the first entry on.
    missing_entries: Count = at("plan.missing")
    # Messages of entries with a body CRC mismatch; they are copied unchanged.
    wrong_bodies: Count = at("plan.wrong_bodies")
    # Queues that still begin with files of messages before the log: its first files are lost, and not deleted by
    # retention.
    queues_before_log: Count = at("older_queues")
    left_out: list[NotTaken] = at("plan.left")  # Parts of the DLedger log that are not copied, at most 1000 extents.
    # All extents, by reason.
    left_out_totals: list[NotTakenTotal] = by(lambda found, _: sorted(found.plan.totals.items()))
    carried_over: list[CarriedFile] = at("carried")  # Configuration and other files next to the log.
    # Files and directories next to the log that contain physical offsets of the DLedger log.
    not_carried_over: list[str] = by(lambda found, _: [*found.left])


class _NeededOfNew(Shape):
    # Approximate size of the new store on the disk, without copied configuration.
    needed_bytes: Count = at("plan.needed")


class ConvertResult(_NeededOfNew, Derived, ConvertedStore):
    """What was converted, and what was not."""


def convert_json(found: Converted, output: Path) -> dict[str, Any]:
    """The `result` of ``convert STORE --output NEW``."""
    return ConvertResult.of(found, _Place(found.rebuild, [str(found.plan.conversion.store.root)], output))


_LEFT = "physical offsets of the old log; a broker builds its timers again, and delivers again what was due"


def show_conversion(found: Converted, style: Style) -> None:
    """Show a plan, and what a rebuild has made of it; all extents with -v."""
    plan, carried, left, rebuild, older_queues = found
    most = None if style.verbosity > 0 else _MAX_ROWS
    console = style.console()
    print_lines(console, *_lines(plan, older_queues))
    if plan.left:
        rows = [(each.physical_offset, each.size, each.reason, each.messages) for each in plan.left[:most]]
        show_table(console, table("", "physical offset>, bytes>, reason, messages>", rows))
    _show_problems(console, carried)
    if left:
        print_lines(console, f"not copied: {', '.join(left)}: {_LEFT}")
    if rebuild:
        show_derived(rebuild, console, most)


def _lines(plan: ConversionPlan, older_queues: int) -> Iterator[str]:
    conversion = plan.conversion
    yield (f"new log: {counted(plan.files, 'file')} of {byte_size(conversion.file_size)}, "
             f"offsets {conversion.min_offset} to {plan.end}")  # fmt: skip
    if conversion.plain:
        yield f"as they are: {counted(len(conversion.plain), 'commit log file')}"
    if conversion.entries:
        yield f"from entries: {counted(plan.messages, 'message')}, {byte_size(plan.bytes)}"
        if conversion.committed is None:
            yield "all entries are copied, whether committed or not"
    for reason, total in sorted(plan.totals.items()):
        what = f"{counted(total.records, 'message')}, " if total.records else ""
        yield f"left out: {what}{byte_size(total.size)}: {LEFT_MEANINGS[reason]}"
    if plan.filled_bytes:
        yield f"filled: {byte_size(plan.filled_bytes)} of dummy records, in place of lost entries"
    if plan.missing:
        yield f"missing: {counted(plan.missing, 'committed message')}, by the Raft indices of the entries"
    if plan.wrong_bodies:
        wrong = f"{counted(plan.wrong_bodies, 'message')} with a damaged body"
        yield f"damaged: {wrong}, copied unchanged; salvage leaves such messages out, or finds them in another node"
    if older_queues:
        verb = "begins" if older_queues == 1 else "begin"
        what = f"{counted(older_queues, 'queue')} still {verb} with files of earlier messages"
        begin = f"the log begins at {conversion.min_offset}"
        yield f"missing: {begin}, but {what}, which retention would have deleted, too: these messages are lost"
