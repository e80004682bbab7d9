"""A copy of a store, planned, done or checked, as JSON and for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rmqtool.base.numbers import Count, Long, byte_size
from rmqtool.base.times import Moment
from rmqtool.base.visible import visible
from rmqtool.copy.job import CopyPlan, CopyResult, Expired
from rmqtool.copy.manifest import Difference, Manifest
from rmqtool.findings.finding import Finding, counted
from rmqtool.show.output import Style, print_fact, show_finding, write_text
from rmqtool.show.shapes import Shape, at, by
from rmqtool.show.times import time_text

_MOST_SHOWN = 20


class CopiedFiles(Shape):
    """What became of the files of a copy."""

    copied: Count  # Files that were read and written.
    same: Count = at("linked")  # Files that the earlier copy had as they are.
    went_on: Count  # Files that an interrupted run had copied.
    vanished: Count  # Files that the broker deleted meanwhile.
    bytes: Count = at("bytes_read")  # What was read of the store, bytes.
    # How long copying the files took that no longer change.
    bulk_seconds: float = by(lambda totals, _: round(totals.bulk_seconds, 3))
    # How long the others took, which are copied in order.
    ordered_seconds: float = by(lambda totals, _: round(totals.ordered_seconds, 3))


class ExpiredFiles(Shape):
    """Files of a restored log that the first run of the broker's cleaner would delete."""

    files: Count  # How many.
    log_files: Count  # Of how many files of the log.
    bytes: Count  # Their sizes together, bytes.
    reserved_hours: Long  # fileReservedTime.


class DifferentFile(Shape):
    """A file that is not as the manifest says."""

    path: str  # Its path in the copy.
    problem: Literal["missing", "extra", "size", "content"]  # What is wrong with it.
    expected: Long | str | None  # Its size in bytes, or its SHA-256; null for an extra file.
    found: Long | str | None  # The same as it is now; null for a missing or extra file.


@dataclass(frozen=True)
class _Answer:
    """What a command has to say; what it does not know is None."""

    state: str
    mode: str
    source: str
    target: str
    running: bool
    as_: str | None = None
    needed_bytes: int | None = None
    settled: bool | None = None
    proven: bool | None = None
    units_added: int | None = None
    min_offset: int | None = None
    end_offset: int | None = None
    last_record_offset: int | None = None
    last_store: int | None = None
    started: int | None = None
    ended: int | None = None
    files: Any = None
    expired: Expired | None = None
    differences: Sequence[Difference] = ()
    verdict: str | None = None


class CopyAnswer(Shape):
    """A copy of a store."""

    # planned: --dry-run. done: the copy is in its place. checked: with --verify, nothing was written.
    state: Literal["planned", "done", "checked"]
    # full: of a store. update: of an earlier copy. restore: of a copy, which becomes a store. verify: with --verify.
    mode: Literal["full", "update", "restore", "verify"]
    source: str  # The directory that was copied.
    target: str  # The directory of the copy.
    running: bool  # Whether a broker ran on the store.
    # What it is for: slave, controller, or the name of another broker; null for the same broker.
    as_: str | None = by(lambda answer, _: answer.as_)
    needed_bytes: Count | None  # Approximate bytes to read and write; null unless planned.
    # Whether queues and index were completed; null if planned, and for a restored copy, which was settled before.
    settled: bool | None
    # Whether the predicted starts serve everything; null without one.
    proven: bool | None
    units_added: Count | None  # Units of the queues that were written for that.
    min_offset: Long | None  # Where the log of the copy begins, bytes; null when planned.
    end_offset: Long | None  # Where it ends, bytes; null when planned.
    last_record_offset: Long | None  # Its last record, -1 without one; null when planned.
    last_store: Moment  # When that one was stored; null when planned.
    started: Moment  # When the copy began: what was acknowledged before is in it; null when planned.
    ended: Moment  # When it was done; null when planned.
    files: CopiedFiles | None  # What happened to its files; null unless done.
    expired: ExpiredFiles | None  # What the cleaner would delete of a restored log; null where nothing.
    differences: list[DifferentFile]  # Differences from the manifest, with --verify.
    verdict: str | None  # That of verify on the copy; null without --verify, and for a copy on another machine.


def plan_json(plan: CopyPlan, source: Path, target: Path) -> dict[str, Any]:
    """The `result` of a dry run."""
    expired = plan.expired if plan.expired.files else None
    answer = _Answer(
        "planned", plan.mode, str(source), str(target), plan.running, needed_bytes=plan.needed, expired=expired
    )
    return CopyAnswer.of(answer)


def copy_json(found: CopyResult, target: Path) -> dict[str, Any]:
    """The `result` of a copy that was made."""
    settled = found.settled
    answer = _Answer(
        "done", found.mode, target=str(target), files=found.totals,
        settled=None if found.mode == "restore" else found.manifest.settled,
        proven=settled.is_proven if settled else None, units_added=settled.units if settled else None,
        **_facts(found.manifest),
    )  # fmt: skip
    return CopyAnswer.of(answer)


def check_json(
    manifest: Manifest, different: Sequence[Difference], verdict: str | None, target: Path
) -> dict[str, Any]:
    """The `result` of ``copy --verify``."""
    answer = _Answer("checked", "verify", target=str(target), settled=manifest.settled, differences=different,
                     verdict=verdict, **_facts(manifest))  # fmt: skip
    return CopyAnswer.of(answer)


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {
        "source": manifest.source,
        "running": manifest.running,
        "as_": manifest.identity,
        "min_offset": manifest.min_offset,
        "end_offset": manifest.end_offset,
        "last_record_offset": manifest.last_record,
        "last_store": manifest.last_store_timestamp,
        "started": manifest.started,
        "ended": manifest.ended,
    }


def expired_sentence(expired: Expired) -> str:
    """That a cleaner would delete what is restored, and what to do."""
    files = "its log file is" if expired.files == 1 else f"{expired.files} of {expired.log_files} files of its log are"
    return (
        f"WARNING: {files} older than fileReservedTime ({expired.reserved_hours} hours): the broker's first cleaning "
        f"deletes them, {byte_size(expired.bytes)}. --fresh-times counts their age from now on"
    )


_MODES = {"full": "full copy", "update": "update of a copy", "restore": "restore of a copy"}


def show_copy_plan(plan: CopyPlan, style: Style) -> None:
    """Print what would be done."""
    console = style.console()
    running = ", while its broker runs" if plan.running else ""
    print_fact(console, "copy", f"{_MODES[plan.mode]}{running}")
    print_fact(console, "to copy", f"about {byte_size(plan.needed)}")
    if plan.expired.files:
        print_fact(console, "times", expired_sentence(plan.expired).removeprefix("WARNING: "))


def show_copy(found: CopyResult, style: Style) -> None:
    """Print what was done."""
    console = style.console()
    manifest, totals, settled = found.manifest, found.totals, found.settled
    files = [counted(totals.copied, "file")]
    files += [f"{totals.linked} unchanged since the earlier copy"] if totals.linked else []
    files += [f"{totals.went_on} from an interrupted run"] if totals.went_on else []
    print_fact(console, "copied", f"{', '.join(files)}; {byte_size(totals.bytes_read)} read")
    _show_log(console, manifest)
    if settled and not settled.complete:
        print_fact(console, "raw", "not completed: see the findings, and name --broker-conf or --broker-version")
    elif settled:
        entries = f"{settled.units} queue {'entry' if settled.units == 1 else 'entries'}"
        changes = [entries] if settled.units else []
        changes += [counted(settled.files, "index file")] if settled.files else []
        added = f"{' and '.join(changes)} written again" if changes else "nothing was missing"
        state = "it starts as after a clean stop, and loses nothing" if settled.is_proven else "see the findings"
        print_fact(console, "settled", f"{added}; {state}")
    elif found.mode != "restore":
        print_fact(console, "raw", "as after a crash: the first start completes queues and index")
    for each in found.findings:
        show_finding(console, each)


def _show_log(console: Any, manifest: Manifest) -> None:
    last = f", last message stored {time_text(manifest.last_store_timestamp)}" if manifest.last_record >= 0 else ""
    print_fact(console, "log", f"offsets {manifest.min_offset} to {manifest.end_offset}{last}")


def show_check(
    manifest: Manifest, different: Sequence[Difference], verdict: str | None, findings: Sequence[Finding], style: Style
) -> None:
    """Print what a check of a copy has found."""
    console = style.console()
    print_fact(console, "copy of", f"{manifest.host}:{manifest.source}, made {time_text(manifest.ended)}")
    _show_log(console, manifest)
    size = byte_size(sum(file.used for file in manifest.files))
    if not different:
        write_text(f"manifest: all {counted(len(manifest.files), 'file')} are as they were, {size}\n")
    else:
        write_text(f"manifest: {counted(len(different), 'file')} of {len(manifest.files)} changed\n")
        for each in different[:_MOST_SHOWN]:
            write_text(f"  {each.problem}  {visible(each.path)}\n")
        if len(different) > _MOST_SHOWN:
            write_text(f"  and {len(different) - _MOST_SHOWN} more\n")
    for finding in findings:
        show_finding(console, finding)
    if verdict is not None:
        write_text(f"verify: {verdict}\n")
