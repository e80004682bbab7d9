"""The one sentence that answers: what goes with the next run, or why nothing does; and times as people read them."""

from __future__ import annotations

from rmqtool.broker.delete_when import MAX_TIME, local_time
from rmqtool.clean.losses import Losses
from rmqtool.clean.plan import CleanPlan
from rmqtool.show.output import byte_size

_MINUTE_MS = 60_000


def answer(plan: CleanPlan, losses: Losses) -> str:
    """What goes and why, and who loses unread messages; or why nothing goes."""
    deleted = plan.deleted
    if not deleted:
        return f"{_nothing(plan)}{_followers(plan)}"
    count, files = len(deleted), len(plan.facts.log_files)
    runs = "The next run deletes" if len(plan.runs) == 1 else f"The next {len(plan.runs)} runs delete"
    size = byte_size(sum(fate.log_file.allocated for fate in deleted))
    reasons = {fate.reason for fate in deleted}
    why = "they have expired" if "forced" not in reasons else f"the disk is {_used(plan)} % full, whatever their age"
    if len(reasons) > 1:
        why = f"some have expired, and the disk is {_used(plan)} % full"
    lost = sum(item.messages_lost for item in losses.groups)
    groups = len({item.group for item in losses.groups if item.messages_lost})
    losers = f"; {_counted(groups, 'group')} {'loses' if groups == 1 else 'lose'} {_counted(lost, 'unread message')}"
    return (
        f"{runs} {count} of {files} log files ({size}): {why}{losers if lost else '; no group loses unread messages'}."
    )


def _followers(plan: CleanPlan) -> str:
    """Queue and index files that go although no log file does."""
    run = plan.runs[0]
    if not (run.queue_files or run.index_files):
        return ""
    return f" {len(run.queue_files)} queue files and {len(run.index_files)} index files go that point below the log."


def _nothing(plan: CleanPlan) -> str:
    """Why the next run deletes no log file."""
    trigger = plan.trigger
    candidates = [fate for fate in plan.runs[0].log.kept if fate.reason not in ("last-file", "ahead")]
    if trigger.failure is not None:
        return f"The next run deletes nothing: it fails at deleteWhen {plan.rules.settings.delete_when!r}."
    if not plan.facts.log_files:
        return "Nothing to delete: the commit log has no file."
    if not candidates:
        return "The next run deletes nothing: the log has only its last file, which never goes."
    first = candidates[0]
    if first.reason == "in-use":
        return "The next run deletes nothing: the first file is still being read."
    if first.expires > plan.now:
        full = f" The disk is {_used(plan)} % full, but not so full that age would not count." if trigger.space else ""
        expires = f"the oldest does in {duration(first.expires - plan.now)}, {moment(first.expires, plan)}"
        return f"The next run deletes nothing: no file has expired that could go; {expires}.{full}"
    expired = sum(fate.expires <= plan.now for fate in candidates)
    due = "deleteWhen matches no hour" if plan.next_start is None else f"next {moment(plan.next_start, plan)}"
    what = "1 file has" if expired == 1 else f"{expired} files have"
    return f"The next run deletes nothing: {what} expired, but it is not the hour ({due})."


def _used(plan: CleanPlan) -> str:
    return f"{round(max(plan.trigger.log_ratio, plan.trigger.queue_ratio or 0) * 100, 2):g}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def moment(timestamp: int | None, plan: CleanPlan) -> str:
    """A time in the broker's zone, ``2026-11-22 04:00 +08:00``; with its number where no calendar has it."""
    if timestamp is None:
        return "never"
    if not 0 <= timestamp <= MAX_TIME:
        return f"at {timestamp} ms"
    text = local_time(timestamp, plan.rules.zone).strftime("%Y-%m-%d %H:%M %z")
    return f"{text[:-2]}:{text[-2:]}"


def duration(milliseconds: int) -> str:
    """A length of time in its two largest units, such as ``3 d 4 h``."""
    minutes = abs(milliseconds) // _MINUTE_MS
    days, hours, rest = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} d {hours} h" if days < 100 else f"{days} d"
    return f"{hours} h {rest} min" if hours else f"{rest} min"
