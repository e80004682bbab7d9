"""`rmqtool clean STORE`: show what the broker's cleaner would delete, or delete it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqtool.base.errors import Exit, RmqtoolError, UsageError
from rmqtool.base.numbers import PERCENT, byte_size
from rmqtool.base.times import parse_zone, rfc3339
from rmqtool.base.visible import quote
from rmqtool.broker.trigger import MAX_TIME
from rmqtool.commands import shared_options as shared
from rmqtool.commands.options import command, flag, joined, now_option, option, parsed, time_or_clock
from rmqtool.commands.writing import confirm, print_recovered, recovered_json, told_anyway, write_plan
from rmqtool.rules.retention import NAMES
from rmqtool.rules.versions import parse_version
from rmqtool.show.output import Style, note, write_document, write_text
from rmqtool.show.times import show_times_in, shown_zone

if TYPE_CHECKING:
    from rmqtool.clean.deletion import SavedCleanPlan
    from rmqtool.clean.forecast import Forecast
    from rmqtool.clean.losses import Losses
    from rmqtool.clean.other_logs import OtherLogs
    from rmqtool.clean.plan import CleanPlan
    from rmqtool.findings.finding import Finding
    from rmqtool.scan.filters import Filters
    from rmqtool.show.clean_text import NextOptions
    from rmqtool.transaction.home import Recovered
    from rmqtool.transaction.plan_file import PlanFile

_MAX_INT = (1 << 31) - 1
_HOURS = re.compile(r"(?:[01]?\d|2[0-3])(?:;(?:[01]?\d|2[0-3]))*", re.ASCII)
_WHOLE = re.compile(r"\d{1,10}", re.ASCII)
_DECIMAL = re.compile(r"\d{1,10}(?:\.\d{1,10})?", re.ASCII)

Check = Callable[[click.Context, click.Parameter, str | None], str | None]


def _number(low: int, high: int, *, whole: bool = True) -> Check:
    """A check of a number, which stays as it was written: broker.conf would hold it so."""
    form, kind = (_WHOLE, "whole number") if whole else (_DECIMAL, "number")

    @parsed
    def check(value: str) -> str:
        if not (form.fullmatch(value) and low <= float(value) <= high):
            raise ValueError(f"{value!r} is not a {kind} from {low} to {high}")
        return value

    return check


@parsed
def _hours(value: str) -> str:
    if not _HOURS.fullmatch(value):
        raise ValueError(f"{value!r} is not hours from 0 to 23 such as 04 or 04;16")
    return value


_PERCENT, _LEVEL = _number(0, 100), _number(0, 100, whole=False)
_COUNT = _number(1, _MAX_INT)
# What makes no sense is refused here, while a broker.conf is read as the broker reads it.
_SETTINGS: dict[str, tuple[str, Check, str]] = {
    "fileReservedTime": (
        "HOURS", _number(0, _MAX_INT), "Hours that a log file is kept after its last change. Default: 72.",
    ),
    "deleteWhen": ("HOURS", _hours, "Hours of the day at which expired files are deleted, such as 04 or 04;16. "
    "Default: 04."),
    "diskMaxUsedSpaceRatio": ("PERCENT", _PERCENT, "Above it expired files are deleted at any hour. Default: 75."),
    "diskSpaceWarningLevelRatio": ("PERCENT", _LEVEL, "Above it the broker refuses messages. Default: 90."),
    "diskSpaceCleanForciblyRatio": ("PERCENT", _LEVEL, "Above it files are deleted regardless of age. Default: 85."),
    "deleteFileBatchMax": ("N", _COUNT, "Delete at most this many log files in one run. Default: 10."),
    "cleanResourceInterval": ("MS", _COUNT, "Time between two runs. Default: 10000."),
    "replicasPerDiskPartition": ("N", _COUNT, "Brokers that share the disk. Default: 1."),
    "logicalDiskSpaceCleanForciblyThreshold": (
        "FRACTION", _number(0, 1, whole=False), "With several brokers: above this part of its share files are "
        "deleted regardless of age. Default: 0.8.",
    ),
}  # fmt: skip
_FORCIBLY = "cleanFileForciblyEnable"


@parsed
def _float(value: float) -> float:
    if math.isnan(value):
        raise ValueError("nan is not a number")
    return value


def _kebab(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"-\1", name).lower()


def _settings() -> Any:
    """The cleaner's settings as one field: values by the broker's own names."""
    parameters = [
        *(click.Option([f"--{_kebab(name)}"], metavar=metavar, callback=check, help=text)
          for name, (metavar, check, text) in _SETTINGS.items()),
        click.Option([f"--{_kebab(_FORCIBLY)}/--no-{_kebab(_FORCIBLY)}"], default=None,
                     help="Whether files may be deleted regardless of age. Default: yes."),
    ]  # fmt: skip

    def made(given: Mapping[str, Any], _: object) -> dict[str, str]:
        values = {name: given[_kebab(name).replace("-", "_")] for name in NAMES}
        values[_FORCIBLY] = None if values[_FORCIBLY] is None else str(values[_FORCIBLY]).lower()
        return {name: value for name, value in values.items() if value is not None}

    return joined(parameters, made, _setting_words)


def _setting_words(settings: Mapping[str, str]) -> list[str]:
    words = []
    for name, value in settings.items():
        if name == _FORCIBLY:
            words.append(f"--{'' if value == 'true' else 'no-'}{_kebab(name)}")
        else:
            words += [f"--{_kebab(name)}", value]
    return words


@dataclass(frozen=True, kw_only=True)
class CleanOptions(shared.OnTier):
    """What was asked for; of a saved plan, what it was made with."""

    dry_run: bool = shared.dry_run_option()
    save_plan: Path | None = shared.save_plan_option()
    plan: Path | None = shared.plan_option()
    all_runs: bool = flag("With --dry-run: show all runs until one deletes nothing.")
    manual: bool = flag("As after mqadmin deleteExpiredCommitLog: delete expired files at any hour.")
    first_file_in_use: bool = flag("As if a consumer still read the first file (hanged file).")
    options: dict[str, str] = _settings()
    now: int | None = now_option()
    disk_used_percent: float | None = option(
        "As if every disk were this full, as that version computes it. Default: measured.",
        type=click.FloatRange(*PERCENT), callback=_float, metavar="PERCENT",
    )  # fmt: skip
    filters: Filters = shared.filter_options("topic", "exclude-topic")
    yes: bool = shared.yes_option()
    allow_unread: bool = flag(
        "Also delete messages that a group has not read or that await delivery; without it you are asked for the "
        "store's name."
    )
    zone: tzinfo | None = None  # of --time-zone, or of a saved plan

    def require_consistent(self) -> None:
        """Raise UsageError for options that exclude each other."""
        if self.all_runs and (self.save_plan or not self.dry_run):
            raise UsageError(
                "--all-runs shows runs and deletes nothing: it needs --dry-run, and no plan holds several runs"
            )
        if self.plan and (self.dry_run or self.save_plan or self.chooses):
            raise UsageError("--plan applies the saved plan: it cannot be combined with other options")

    @property
    def chooses(self) -> bool:
        """Whether it decides which files go, but for the zone, which is given for what is shown, too."""
        given = (getattr(self, name) for name in _CHOICES if name != "zone")
        return any(value is not None and value is not False and value != {} for value in given)

    @property
    def as_if(self) -> bool:
        """Whether the time or the disk was given, and is not this machine's."""
        return self.now is not None or self.disk_used_percent is not None

    @property
    def choices(self) -> dict[str, Any]:
        """What decides which files go, as JSON."""
        texts = ("zone", "broker_version")
        found = {name: getattr(self, name) for name in _CHOICES}
        return {name: str(value) if name in texts and value is not None else value for name, value in found.items()}


_CHOICES: Mapping[str, Callable[[Any], bool]] = {
    "now": lambda value: value is None or (type(value) is int and 0 <= value <= MAX_TIME),
    "zone": lambda value: value is None or isinstance(value, str),
    "disk_used_percent": lambda value: value is None or (type(value) in (int, float) and 0 <= value <= 100),
    "manual": lambda value: isinstance(value, bool),
    "first_file_in_use": lambda value: isinstance(value, bool),
    "options": lambda value: isinstance(value, dict) and all(
        name in NAMES and isinstance(setting, str) for name, setting in value.items()),
    "broker_version": lambda value: value is None or isinstance(value, str),
}  # fmt: skip
"""What decides which files go, by the names of fields, and what each is in a saved plan; broker.conf is read again."""


def read_choices(saved: PlanFile) -> dict[str, Any]:
    """What a saved plan was made with; raises UsageError for what no plan holds."""
    found = saved.document.get("options")
    if not isinstance(found, dict) or found.keys() != _CHOICES.keys():
        raise saved.odd_options()
    if not all(fits(found[name]) for name, fits in _CHOICES.items()):
        raise saved.odd_options()
    zone, version = found["zone"], found["broker_version"]
    try:
        return found | {
            "zone": None if zone is None else parse_zone(zone),
            "broker_version": None if version is None else parse_version(version),
        }
    except ValueError:
        raise saved.odd_options() from None


def next_options(given: CleanOptions) -> NextOptions:
    """What the next command lines need of this one.

    The consent of --allow-unread is for one run: it is in none of them.
    """
    from rmqtool.show.clean_text import NextOptions

    def line(*words: str) -> str:
        return "".join(f" {quote(word)}" for word in words)

    read = given.words("broker_conf", "tiered_path", "limit_rate")
    zone = ("--time-zone", str(given.zone)) if given.zone else ()
    percent = given.disk_used_percent
    percents = () if percent is None else ("--disk-used-percent", str(percent).removesuffix(".0"))
    flags = given.words("manual", "first_file_in_use", "options")
    same = line(*read, *given.words("broker_version"), *zone, *percents, *flags)
    time = "" if given.now is None else line("--now", str(rfc3339(given.now)))
    return NextOptions(same, time, line("--plan", str(given.save_plan), *read) if given.save_plan else same + time)


@command(
    "clean",
    CleanOptions,
    (
        "rmqtool clean /data/rocketmq/store --dry-run",
        "rmqtool clean /data/rocketmq/store --dry-run --all-runs",
        "rmqtool clean /data/rocketmq/store --dry-run --file-reserved-time 24",
        "rmqtool clean /data/rocketmq/store --dry-run --disk-used-percent 91",
        "rmqtool clean /data/rocketmq/store --dry-run --tiered-path /mnt/tier",
        "rmqtool clean /data/rocketmq/store --manual --save-plan /tmp/plan.json",
        "rmqtool clean /data/rocketmq/store --plan /tmp/plan.json",
    ),
    {
        Exit.OK: "done, whether or not anything would be deleted",
        Exit.LOSSY: "done, but something in the store could not be read",
        Exit.USAGE: "a wrong command line or broker.conf, or the loss was not confirmed",
        Exit.FAILED: "something cannot be read or is not supported, or a plan is outdated",
        Exit.IN_USE: "without --dry-run: a broker runs on the store",
    },
)
def clean(style: Style, given: CleanOptions) -> Exit:
    """Preview or delete expired files; forecast the disk.

    STORE is the directory that broker.conf calls storePathRootDir. Shows which files the broker's cleaner will delete
    in its next run and why, when the others follow, who loses unread messages, and how long the disk lasts. With
    --dry-run nothing is changed, and a broker may be running. Without it, the files of the next run are shown and,
    after you agree, deleted for good, but only while no broker runs. If unread messages would be deleted, a yes is not
    enough. --topic selects whose losses are listed; it does not change what is deleted.
    """
    from rmqtool.clean.deletion import SavedCleanPlan
    from rmqtool.store.commit_log import retry_on_deletion
    from rmqtool.store.store import require_plain_log

    given.require_consistent()
    saved = SavedCleanPlan(given.plan) if given.plan else None
    given = replace(given, zone=shown_zone())
    if saved:
        given = replace(given, **_saved_choices(saved, given.zone))
    store = given.opened
    if not given.dry_run:
        require_plain_log(store.snapshot.store, "clean without --dry-run")
    make_plan = partial(
        store.clean_plan,
        now=time_or_clock(given.now),
        all_runs=given.all_runs,
        manual=given.manual,
        first_file_in_use=given.first_file_in_use,
        settings=given.options,
        disk_used_percent=given.disk_used_percent,
        zone=given.zone,
    )
    shown = retry_on_deletion(lambda: _explained(style, make_plan(), given))
    if given.save_plan:
        shown.save(given.save_plan)
    if given.dry_run or given.save_plan:
        shown.show(shown.state)
    else:
        _delete(shown, make_plan, saved)
    return Exit.OK


def _saved_choices(saved: SavedCleanPlan, given: tzinfo | None) -> dict[str, Any]:
    """What a plan was made with, and its zone for what is shown; raise UsageError where another zone was `given`."""
    choices = read_choices(saved)
    if given is not None and str(given) != str(choices["zone"]):
        whose = f"in {choices['zone']}" if choices["zone"] else "in this machine's time zone"
        raise UsageError(f"the plan was made {whose}: it cannot be carried out with --time-zone {given}")
    show_times_in(choices["zone"])
    return choices


def _delete(shown: _PlanOutput, make_plan: Callable[[], CleanPlan], saved: SavedCleanPlan | None) -> None:
    """Show the plan, ask, lock the store, plan again, and delete if the plan is the same."""
    from rmqtool.clean.deletion import delete, files_to_delete, refuse, same_deletion
    from rmqtool.transaction.home import interrupted
    from rmqtool.transaction.transaction import Transaction

    style, plan = shown.style, shown.plan
    refuse(plan)
    _require_release(shown)
    unfinished = interrupted(plan.snapshot.store.root)
    if saved and not unfinished:
        saved.require_same(plan)
    count = sum(1 for _ in files_to_delete(plan))
    if not count and not unfinished:
        shown.show("nothing")
        return
    if not style.json:
        shown.show("planned", is_last=False)
    if plan.snapshot.holder:  # before anybody is asked; the transaction checks again
        hint = "stop the broker, or leave the cleaning to it: it checks every few seconds"
        raise plan.snapshot.holder.refusal(plan.snapshot.store.root, effect="nothing is deleted", hint=hint)
    _ask(shown, count, unfinished)
    with Transaction(plan.snapshot.store, "clean") as transaction:
        recovered = transaction.recovered
        print_recovered(recovered)
        if recovered:  # the plan that was shown is outdated
            shown.done("recovered", None, recovered)
            return
        if not same_deletion(make_plan(), plan):
            message = "the store or the hour has changed since it was shown: nothing was deleted"
            raise RmqtoolError(message, file=plan.snapshot.store.root, hint="run it again")
        if saved:
            saved.require_same(plan)
        committed = delete(plan, transaction)
    with told_anyway(style, "deleted for good"):
        shown.done(committed.state, committed.id, ())


def _require_release(shown: _PlanOutput) -> None:
    """Nothing is deleted that one of the releases which may run on the store would keep."""
    for finding in shown.findings:
        if finding.code == "store.version-ambiguous":
            raise UsageError(finding.message, hint="name the release with --broker-version; nothing was deleted")


def _ask(shown: _PlanOutput, count: int, unfinished: str | None) -> None:
    """Return when the user agrees; where unread messages go, --yes or a "y" is not enough."""
    from rmqtool.show.clean_text import losses_text
    from rmqtool.transaction.home import unfinished_deletion

    given = shown.given
    first = f"Finish the interrupted run {unfinished} first, and look again. " if unfinished else ""
    if given.as_if:
        first += "You gave the time or the disk usage; they were not measured. "
    if given.yes and given.as_if:
        note("this deletes by the time or the disk usage that you gave, not by those of this machine")
    question = f"{first}Delete {'this file' if count == 1 else f'these {count} files'} for good?"
    left = unfinished_deletion(shown.plan.snapshot.store.root)
    if left:
        question = f"The interrupted {left.text} is finished, and nothing else is done ({left.to_keep_them}). Continue?"
    if given.allow_unread or not shown.losses.may_lose_unread:
        confirm(question, yes=given.yes)
        return
    lost = losses_text(shown.losses)
    if given.yes:
        hint = "--dry-run shows who loses what; --allow-unread accepts it; nothing was changed"
        raise UsageError(f"--yes is not enough: {lost}", file=shown.plan.snapshot.store.root, hint=hint)
    root = os.path.abspath(shown.plan.snapshot.store.root)
    confirm(f"{lost[0].upper()}{lost[1:]}. {question}", yes=False, name=os.path.basename(root) or root)


@dataclass(frozen=True)
class _PlanOutput:
    """A plan with all that is shown of it."""

    style: Style
    plan: CleanPlan
    losses: Losses
    forecast: Forecast
    others: OtherLogs
    findings: Sequence[Finding]
    following: NextOptions
    given: CleanOptions

    @property
    def state(self) -> str:
        """Whether there is something to delete."""
        return "planned" if self.plan.runs[0].deletes else "nothing"

    def save(self, path: Path) -> None:
        """Write the plan to a file, with the choices that it was made with."""
        from rmqtool.clean.deletion import clean_plan_text
        from rmqtool.show.clean_json import clean_json

        result = {"state": self.state, **clean_json(self.plan, self.losses, self.forecast)}
        write_plan(path, clean_plan_text(self.plan, self.given.choices, result), self.plan.snapshot.store.root)

    def show(
        self, state: str, transaction: str | None = None, recovered: Sequence[Recovered] = (), *, is_last: bool = True
    ) -> None:
        """Print all of it; what to run next only where it `is_last`."""
        from rmqtool.show.clean_json import clean_json, other_logs_json
        from rmqtool.show.clean_text import note_next, show_plan

        if self.style.json:
            done = {"state": state, "transaction": transaction, "recovered": recovered_json(recovered)}
            shown = clean_json(self.plan, self.losses, self.forecast, self.given.filters.topic_choice)
            shown |= other_logs_json(self.others)
            write_document(self.style, "clean", {**done, **shown}, findings=self.findings)
            return
        show_plan(self.plan, self.losses, self.forecast, self.others, self.findings, self.style,
                  self.given.filters.topic_choice)  # fmt: skip
        if is_last and not self.style.quiet:
            note_next(self.plan, self.following, self.forecast.next_deletion, is_whole=self.given.all_runs)

    def done(self, state: str, transaction: str | None, recovered: Sequence[Recovered]) -> None:
        """Print what was done; people have seen the rest."""
        from rmqtool.show.clean_text import note_next

        if self.style.json:
            self.show(state, transaction, recovered)
            return
        if state == "done":
            write_text(f"deleted for good; {byte_size(self.plan.runs[0].freed_bytes)} are free again\n")
        if not self.style.quiet:
            note_next(self.plan, self.following, None, done=True)


def _explained(style: Style, plan: CleanPlan, given: CleanOptions) -> _PlanOutput:
    """A plan with losses, forecast and findings, computed while its files are there."""
    from rmqtool.clean.findings import findings_of
    from rmqtool.clean.forecast import forecast
    from rmqtool.clean.losses import losses_of
    from rmqtool.clean.other_logs import other_logs_of
    from rmqtool.store.missing import unknown_topic

    following = next_options(given)
    findings = list(findings_of(plan, following.same + following.time))
    for unknown in filter(None, (unknown_topic(plan.snapshot, topic) for topic in given.filters.topics)):
        raise UsageError(unknown)
    others = other_logs_of(plan)
    return _PlanOutput(style, plan, losses_of(plan), forecast(plan), others, findings, following, given)
