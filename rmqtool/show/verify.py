"""The outcome of a verification and of a repair for people, with the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from rmqtool.base.numbers import byte_size
from rmqtool.base.visible import quote, visible
from rmqtool.broker.prediction import StartPrediction
from rmqtool.broker.start_duration import WORTH_SAYING, Shorter, StartDuration
from rmqtool.findings.finding import Finding, counted, first_of
from rmqtool.rules.versions import newer_than_known
from rmqtool.show.output import SEVERITY_STYLES, Style, note, print_labelled, show_effect
from rmqtool.show.times import sentence
from rmqtool.store.config_tables import MISSING, lost_place
from rmqtool.verify.bad_extents import UNREAD, State, cells
from rmqtool.verify.gaps import summary_of
from rmqtool.verify.outcome import EMPTY, Outcome

if TYPE_CHECKING:
    from rmqtool.rebuild.plan import RebuildPlan
    from rmqtool.repair.diagnosis import Repairs
    from rmqtool.repair.plan import Plan
    from rmqtool.repair.proof import Proof

_INDENT = "     "


def show_plan(plan: Plan, console: Console) -> None:
    """Print what to do."""
    head = Text("What to do", style="bold")
    if plan.start_after:
        head.append(f"  Do not start a broker until step {plan.start_after} is done", style="bold red")
    console.print(head, soft_wrap=True)
    for number, step in enumerate(plan.steps, 1):
        print_labelled(console, Text(f"{number:>3}. "), sentence(step.text))
        if step.command:  # in one piece, so that it can be pasted
            console.print(Text(_INDENT + visible(step.command), style="bold"), soft_wrap=True)
        for change in step.changes:
            print_labelled(console, Text(f"{_INDENT}- ", style="dim"), sentence(change))
        for lost in step.lost:
            print_labelled(console, Text(f"{_INDENT}lost: ", style="yellow"), sentence(lost))
    for text in plan.remaining:
        print_labelled(console, Text("  remains: ", style="dim"), sentence(text))
    if plan.steps and plan.clients is not None:
        refuses = "no broker starts" if plan.clients.refuses else ""
        left = ", ".join(filter(None, (refuses, plan.clients.in_words))) or "clients lose nothing"
        print_labelled(console, Text("  after: ", style="dim"), left)


_LABEL_WIDTH = 9
_CELLS, _LEAST_CELLS = 60, 20  # of one line of the map
_OFFSET_WIDTH = 20  # of the offset before it
_MAX_LINES = 8
_SMALLEST_CELL = 512  # bytes
_SIGNS: dict[State | None, tuple[str, str]] = {
    "good": ("=", "green"),
    "bad": ("X", "bold red"),
    "torn": ("~", "yellow"),
    "unreachable": ("!", "bold red"),
    "unread": ("?", "bold magenta"),
    "not-reached": ("-", "dim"),
    None: (".", "dim"),
}
_MEANINGS: dict[State | None, str] = {
    "good": "good",
    "bad": "bad",
    "torn": "torn",
    "unreachable": "lost by a start",
    "unread": "unreadable",
    "not-reached": "not reached",
    None: "empty",
}
_VERDICTS = {
    "clean": ("bold green", ""),
    "unproven": ("bold yellow", "no problems in the parts read"),
    "dirty": ("bold yellow", "an unclean stop, which the next start fixes without loss"),
    "corrupt": ("bold red", "see the findings"),
}
_LOOK = "rmqtool inspect "
_MAX_EXAMPLES = 3  # of one code, without -v


def show_outcome(
    outcome: Outcome, plan: Plan | None, style: Style, seconds: float, disk_rate: int | None = None
) -> None:
    """Print an outcome, and last its plan, if there is one; mere information is summed up unless verbose."""
    console = style.console()
    _show_facts(console, outcome, seconds, verbose=style.verbosity > 0)
    _show_duration(console, outcome.duration(disk_rate))
    _show_losses(console, outcome, most=None if style.verbosity > 0 else _MAX_EXAMPLES)
    if outcome.snapshot.log.files:
        _show_map(console, outcome)
    shown = [finding for finding in outcome.findings if finding.severity != "info" or style.verbosity > 0]
    for _, same in groupby(shown, key=attrgetter("severity", "code")):
        console.print()
        _show_findings(console, list(same), everything=style.verbosity > 0)
    hidden = len(outcome.findings) - len(shown)
    if hidden or outcome.unproven:
        console.print()
    if hidden:
        shown_by = "-v shows it" if hidden == 1 else "-v shows them"
        print_labelled(console, _label("info"), f"{counted(hidden, 'note')}; {shown_by}")
    if outcome.unproven:
        print_labelled(console, _label("limits"), f"not verified: {sentence('; '.join(outcome.unproven))}")
    if plan:
        console.print()
        show_verdict(console, outcome)
        show_plan(plan, console)
    elif not style.quiet:
        note(f"next: {next_command(outcome)}")


def _show_losses(console: Console, outcome: Outcome, most: int | None) -> None:
    """The topics whose messages clients would lose, those with the most first, and the groups that go on elsewhere."""
    clients = outcome.clients
    if clients is None or clients.refuses:
        return
    by_topic: dict[str, list[int]] = {}
    for queue in clients.unreachable.queues:
        by_topic.setdefault(queue.topic, []).append(queue.messages)
    lost = sorted(by_topic.items(), key=lambda item: (-sum(item[1]), item[0]))
    topics = [f"{topic} {counted(sum(counts), 'message')} of {counted(len(counts), 'queue')}" for topic, counts in lost]
    groups = [
        f"{each.group} at {each.topic} queue {each.queue_id}: {_at(each.next_after)} instead of {_at(each.next_had)}"
        for each in clients.groups
    ]
    for label, texts in (("lost", topics), ("groups", groups)):
        if texts:
            print_labelled(console, _label(label), visible(first_of(texts, most or len(texts))))


def _at(queue_offset: int | None) -> str:
    return "nothing" if queue_offset is None else str(queue_offset)


def show_line(outcome: Outcome, plan: Plan | None, style: Style) -> None:
    """Print the outcome in one line: the verdict, what clients would lose, what to run next."""
    color, _ = _VERDICTS[outcome.verdict]
    facts = filter(None, (_loss(outcome), summary_of(outcome.gaps), _next_step(outcome, plan)))
    line = Text.assemble(Text(outcome.verdict, style=color), visible(f": {'; '.join(facts)}"))
    style.console().print(line, soft_wrap=True)


def _loss(outcome: Outcome) -> str:
    """What clients lose if a broker starts now; where that is not known, why."""
    if outcome.start and outcome.start.hangs:
        return "a broker would never be ready"
    if outcome.clients is None:
        return f"what clients would lose is not predicted: {outcome.start_not_predicted}"
    refuses = f"no broker starts: {outcome.clients.refuses}" if outcome.clients.refuses else ""
    lost = ", ".join(filter(None, (refuses, outcome.clients.in_words))) or "clients lose nothing"
    gone = [] if refuses else _gone(outcome)
    return f"{lost}; a broker starts without the contents of {', '.join(gone)}" if gone else lost


def _next_step(outcome: Outcome, plan: Plan | None) -> str:
    """The command of the plan's first step, else what it says; without a plan the command that looks closer."""
    if plan and plan.steps:
        return f"next: {plan.steps[0].command or sentence(plan.steps[0].text)}"
    if outcome.verdict != "clean":
        return f"next: {next_command(outcome)}"
    warned = _warned(outcome)
    if not warned:
        return "nothing to do"
    return f"see {', '.join(warned)}; next: rmqtool verify {quote(str(outcome.root))}"


def _warned(outcome: Outcome) -> list[str]:
    """The codes of the findings that are more than information."""
    return list(dict.fromkeys(finding.code for finding in outcome.findings if finding.severity != "info"))


def next_command(outcome: Outcome) -> str:
    """The command that follows an outcome without a plan."""
    root = quote(str(outcome.root))
    is_narrowed = outcome.gaps and all(gap.is_chosen for gap in outcome.gaps)
    command = "verify" if is_narrowed or not outcome.complete else "inspect"
    return " ".join(["rmqtool", command, root, *map(quote, outcome.resumed_by)])


def _label(text: str) -> Text:
    return Text(f"{text:<{_LABEL_WIDTH}}", style="dim")


def _show_facts(console: Console, outcome: Outcome, seconds: float, *, verbose: bool) -> None:
    totals = outcome.total.totals
    show_verdict(console, outcome)
    print_labelled(console, _label("store"), str(outcome.root))
    read = byte_size(totals.bytes)
    rate = f", {byte_size(int(totals.bytes / seconds))}/s" if seconds > 1 else ""
    files = len(outcome.snapshot.log.files)
    log = f"{counted(totals.messages, 'message')}, {read}, in {counted(files, 'file')}; {seconds:.1f} s{rate}"
    print_labelled(console, _label("log"), log)
    releases = outcome.snapshot.releases
    if not releases.is_named:
        shown_by = f", by {', '.join(releases.evidence)}" if verbose else " (-v shows why)"
        evidence = shown_by if releases.evidence else "; --broker-version names one"
        print_labelled(console, _label("fits"), f"releases {releases}{evidence}")
    elif is_newer := newer_than_known(releases.newest):
        print_labelled(console, _label("rules of"), is_newer, style="yellow")
    elif outcome.snapshot.release_contradiction:
        text = f"{releases}, but {outcome.snapshot.release_contradiction}: name the release of the broker, or none"
        print_labelled(console, _label("rules of"), text, style="bold red")
    if outcome.start:
        entry = "row in RocksDB" if outcome.snapshot.has_queues_twice else "queue entry"
        _show_start(console, outcome, outcome.start, entry)
    else:
        print_labelled(console, _label("start"), f"not predicted: {outcome.start_not_predicted}")
    for other in outcome.starts[1:]:
        print_labelled(console, _label("start"), f"a broker {other.sentence}")
    bad = sum(reason != UNREAD for _, _, reason in outcome.total.extents)
    if bad:
        text = f"{counted(bad, 'damaged range')} of the log, {byte_size(outcome.damaged_bytes)}"
        print_labelled(console, _label("bad"), text)
    if outcome.lost:
        topics = ", ".join(f"{visible(topic)} {count}" for topic, count in outcome.lost.most_common(8))
        more = len(outcome.lost) - 8
        topics += f" and {counted(more, 'more topic')}" if more > 0 else ""
        text = f"{counted(outcome.lost.total(), 'message')} cannot be read: {topics}"
        text = f"at least {text}" if outcome.lost_is_minimum else text
        print_labelled(console, _label("lost"), text)


def show_verdict(console: Console, outcome: Outcome, *, has_findings: bool = True) -> None:
    """Print the line with the verdict; where the findings are not shown, it names the command that shows them."""
    color, meaning = _VERDICTS[outcome.verdict]
    if outcome.verdict == "corrupt" and not has_findings:
        meaning = f"the findings: rmqtool verify {quote(str(outcome.root))}"
    if outcome.verdict == "clean" and _warned(outcome):
        meaning = "see the warnings"
    loss = outcome.clients.in_words if outcome.clients is not None and not outcome.clients.refuses else ""
    loss = f"after a start now: {loss}" if loss else ""
    empty = EMPTY if outcome.note == EMPTY else ""
    sentence = "; ".join(filter(None, (empty, meaning, loss, summary_of(outcome.gaps))))
    head = Text.assemble(_label("verdict"), Text(outcome.verdict, style=color), " - " if sentence else "")
    print_labelled(console, head, sentence)


def _show_start(console: Console, outcome: Outcome, start: StartPrediction, entry: str) -> None:
    """The effect of the next start of a broker, in one sentence; `entry` is what messages may not get."""
    text = f"a broker {start.version} would "
    if any(finding.code == "upgrade.refused" for finding in outcome.findings):
        text += "not start with this broker.conf; without that it would "
    if start.refuses:
        text += f"refuse to start: {start.refuses}"
    elif start.hangs:
        text += "never be ready"
    else:
        text += f"recover {'after a clean stop' if start.mode == 'normal' else 'as after a crash'}"
        if start.scan_from:
            text += f", scan from {start.scan_from.file}"
        text += f" and end the log at {start.max_offset_after}; {'; '.join(_effects(outcome, start, entry))}"
    print_labelled(console, _label("start"), text)


_WAYS: dict[Shorter, str] = {
    "settle": "repair --settle turns it into a start after a clean stop, which is shorter",
    "fewer-queues": "most of it is for queues: fewer queues would shorten it",
}


def _show_duration(console: Console, duration: StartDuration | None) -> None:
    """How long the start takes, where that is worth a line."""
    if duration is None or duration.high < WORTH_SAYING:
        return
    log = next(step for step in duration.steps if step.name == "log")
    text = f"{duration.low:.1f} to {duration.high:.1f} s for that start; it reads {byte_size(log.bytes)} of the log"
    rate = f" at {byte_size(duration.disk_rate)}/s" if duration.disk_rate else ""
    ways = "".join(f"; {_WAYS[way]}" for way in duration.shorter)
    print_labelled(console, _label("takes"), f"{text}{rate}{ways}")


def _effects(outcome: Outcome, start: StartPrediction, entry: str) -> Iterator[str]:
    """What a start that succeeds does to the store, and what clients lose by it."""
    if start.messages_lost:
        lost = [counted(start.messages_lost, "message")]
        lost += [counted(len(start.files_deleted), "file")] if start.files_deleted else []
        yield f"lost: {', '.join(lost)}"
    else:
        yield "log intact"
    changed = sum(bool(change.truncated or change.dispatched) for change in start.queues)
    if changed:
        yield f"{counted(changed, 'queue')} will change"
    without = sum(change.lost for change in start.queues)
    if without:
        yield f"{counted(without, 'message')} would never get a {entry}"
    if contents := _gone(outcome):
        yield f"it would start without the contents of {', '.join(contents)}"
    if outcome.clients is not None:
        yield outcome.clients.in_words or "clients lose nothing"


def _gone(outcome: Outcome) -> list[str]:
    """The files and databases in `config/` without whose contents a broker would start."""
    gone = (each for each in outcome.findings if each.code == MISSING and each.details.get("lost") != "backup-left")
    return sorted(set(map(lost_place, gone)))


def _show_map(console: Console, outcome: Outcome) -> None:
    begin, end = outcome.log_start, outcome.snapshot.log.files[-1].end_offset
    lines = min(len(outcome.snapshot.log.files), _MAX_LINES)
    width = max(_LEAST_CELLS, min(_CELLS, console.width - _OFFSET_WIDTH))
    cell = max(_SMALLEST_CELL, -(-(end - begin) // (lines * width)))
    count = -(-(end - begin) // cell)
    states = cells(outcome.log_map, begin, cell, count)
    used = [state for state in _SIGNS if state in states]
    legend = ", ".join(f"{_SIGNS[state][0]} {_MEANINGS[state]}" for state in used)
    console.print()
    print_labelled(console, Text(), f"Map ({byte_size(cell)} per character): {legend}", style="dim")
    for first in range(0, count, width):
        line = Text(f"{begin + first * cell:>18}  ", style="dim")
        for state in states[first : first + width]:
            sign, color = _SIGNS[state]
            line.append(sign, style=color)
        console.print(line)


def _show_findings(console: Console, findings: list[Finding], *, everything: bool) -> None:
    """The findings of one code: what the broker does once, then where and what."""
    first = findings[0]
    fault = f" ({first.fault})" if first.fault else ""
    head = Text(f"{first.severity}: ", style=SEVERITY_STYLES[first.severity])
    print_labelled(console, head, f"{first.code}{fault}{how_many(findings)}")
    effects = dict.fromkeys(finding.effect for finding in findings)
    shown = findings if everything or len(findings) <= _MAX_EXAMPLES + 1 else findings[:_MAX_EXAMPLES]
    for finding in shown:
        if location := location_of(finding):
            print_labelled(console, Text("  where:  ", style="dim"), location)
        print_labelled(console, Text("  what:   ", style="dim"), sentence(finding.message))
        if len(effects) > 1:
            show_effect(console, finding)
    if len(shown) < len(findings):
        print_labelled(console, Text("  ...     ", style="dim"), "-v shows more of them", style="dim")
    if len(effects) == 1:
        show_effect(console, first)
    if look := next((finding.remedy for finding in findings if finding.remedy and _LOOK in finding.remedy), None):
        print_labelled(console, Text("  look:   ", style="dim"), look)


def how_many(findings: Sequence[Finding]) -> str:
    """How often a code is found, after a comma: messages in places where each finding counts these; nothing for one."""
    total = sum(finding.count for finding in findings)
    if total > 1 and all(finding.details.get("messages") == finding.count for finding in findings):
        return f", {counted(total, 'message')} in {counted(len(findings), 'place')}"
    return f", {total} times" if total > 1 else ""


def location_of(finding: Finding) -> str:
    """Where a finding is: file, offset, queue."""
    what = "physical offset" if finding.code.startswith("commitlog.") else "at byte"
    fields = ((finding.file, ""), (finding.offset, f"{what} "), (finding.queue, ""),
              (finding.queue_offset, "queue offset "))  # fmt: skip
    return ", ".join(f"{label}{value}" for value, label in fields if value is not None)


def show_found(
    outcome: Outcome, plan: Plan, repairs: Repairs | None, rebuild: RebuildPlan | None, style: Style
) -> None:
    """Show each change with its details and those of the rebuild, and last, what is left to read: verdict and plan."""
    console = style.console()
    for change in repairs.changes if repairs else ():
        print_labelled(console, Text("change  "), sentence(change.what))
        for detail in change.details:
            print_labelled(console, Text("        "), sentence(detail))
        if change.lost:
            print_labelled(console, Text("        lost: ", style="yellow"), sentence(change.lost))
    if rebuild:
        from rmqtool.show import rebuild as rebuild_text

        rebuild_text.show_plan(rebuild, style, verb="planned")
    if repairs:
        console.print()
    show_verdict(console, outcome, has_findings=False)
    if plan:
        show_plan(plan, console)


def show_proof(proof: Proof, root: Path, style: Style) -> None:
    """Show what a start of the repaired store takes from clients that the plan did not say."""
    console = style.console()
    for each in proof.more_lost:
        print_labelled(console, Text("not as planned: ", style="bold red"), sentence(str(each)))
    if proof.more_lost:
        console.print(Text(f"  take the repair back: rmqtool undo {quote(str(root))}", style="bold"), soft_wrap=True)
