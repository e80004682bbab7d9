"""Configuration against the store: the topics, groups, offsets and delays that the store proves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.paths import modified_ms
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.finding import Severity
from rmqtool.findings.report import Report
from rmqtool.rules.config_shapes import main_table
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.store.config_json import ConfigFile, read_config_file
from rmqtool.store.deliveries import Deliveries, Level
from rmqtool.store.store import CONFIG
from rmqtool.transaction.selections import chosen_until
from rmqtool.verify.config_loss import check_losses, report_loss
from rmqtool.verify.offset_witnesses import check_offset_witnesses
from rmqtool.verify.rocksdb_config_loss import check_config_tables
from rmqtool.verify.topic_checks import check_topic_lines
from rmqtool.verify.witnesses import DELAYS, Witnesses

_FLUSH_MS = 60_000  # delay offsets are written every 10 s; with room for slow machines
_CLOCK_MS = 1_000


def check_witnesses(witnesses: Witnesses, report: Report) -> None:
    """Report topics, groups and offsets that the configuration has lost."""
    check_losses(witnesses, report)
    check_config_tables(witnesses, report)
    check_topic_lines(witnesses, report)
    check_offset_witnesses(witnesses, report)
    _check_delays(witnesses, report)


def _check_delays(witnesses: Witnesses, report: Report) -> None:
    file, newest = witnesses.file(DELAYS), witnesses.totals.latest
    offsets = _offsets_of(main_table(DELAYS, file.content))
    report.check("config.delay-offset", len(offsets))
    lost = witnesses.state(DELAYS)
    until = chosen_until(witnesses.snapshot.store.root)
    levels = list(Deliveries(witnesses.messages, newest, delays_known_until(witnesses), until).levels(offsets))
    repeated = sum(level.repeated for level in levels)
    if lost in ("gone", "without its table", "empty") and repeated:
        report_loss(DELAYS, lost, "delays", report, messages=repeated, levels=len(levels))
        return
    repeating: Severity = "info" if witnesses.is_slaves else "warning"
    for level in levels:
        _report_level(level, repeating, report)
    reported = {level.level for level in levels if level.repeated or level.skipped}
    for level_number, earlier in _in_backup(file).items():
        offset = offsets.get(level_number, 0)
        queue = witnesses.ranges.get(QueueName(SCHEDULE_TOPIC, level_number - 1))
        end = min(earlier, queue.max_offset) if queue else earlier  # after the queue's end there is nothing to deliver
        if level_number not in reported and offset < end:
            facts = {"problem": "backup", "level": level_number, "offset": offset, "earlier": earlier}
            report.add("config.delay-offset", details=facts, file=f"{CONFIG}/{DELAYS}", severity=repeating,
                       effect="the broker delivers them again", topic=SCHEDULE_TOPIC, queue_id=level_number - 1,
                       queue_offset=offset)  # fmt: skip


def delays_known_until(witnesses: Witnesses) -> int:
    """Up to when the offsets of delay levels know what was delivered, epoch ms: a killed broker wrote them earlier."""
    file, newest = witnesses.file(DELAYS), witnesses.totals.latest
    table = main_table(DELAYS, file.content)
    written = modified_ms(file.path) if file.path and table else newest + 1 + _CLOCK_MS
    is_copied = written is None or (witnesses.is_unclean and (not table or written > newest + _FLUSH_MS))
    if written is None or is_copied:  # the time of a copy, not of a write
        written = newest - _FLUSH_MS
    return written - _CLOCK_MS


def _in_backup(file: ConfigFile) -> dict[int, int]:
    """Offsets by level in the .bak of a file; empty when the .bak itself is read instead of the file."""
    if file.path is None or file.path.suffix == ".bak":
        return {}
    try:
        backup = read_config_file(file.path.with_name(f"{DELAYS}.bak"))
    except RmqtoolError:
        return {}
    return _offsets_of(main_table(DELAYS, backup))


def _offsets_of(table: Mapping[str, Any] | None) -> dict[int, int]:
    return {int(level): offset for level, offset in (table or {}).items()
            if level.isdecimal() and type(offset) is int}  # fmt: skip


def _report_level(level: Level, repeating: Severity, report: Report) -> None:
    given: dict[str, Any] = {"topic": SCHEDULE_TOPIC, "queue_id": level.level - 1, "queue_offset": level.offset}
    at: dict[str, Any] = {"level": level.level, "offset": level.offset}
    if level.repeated:
        report.add("config.delay-offset", file=f"{CONFIG}/{DELAYS}", severity=repeating,
                   effect="the broker delivers them again",
                   details={"problem": "repeated", "messages": level.repeated, **at}, **given)  # fmt: skip
    if level.skipped:
        report.add("config.delay-offset", file=f"{CONFIG}/{DELAYS}", effect="the broker never delivers them",
                   details={"problem": "skipped", "messages": level.skipped, **at}, **given)  # fmt: skip
