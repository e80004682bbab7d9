"""What becomes of each finding of a verification: one table from codes to the step of the plan that treats them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from rmqtool.findings.finding import Finding
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX

Treatment = Literal[
    "stop", "access", "restore", "decide", "release", "whole-log", "interrupted", "files", "neutralise", "queues",
    "kept", "index", "config", "start", "running", "settings", "ignored", "acknowledge", "none", "refused",
]  # fmt: skip
"""How a finding is treated, in the order of a plan.

`stop` the broker first; give `access` to what cannot be read; `restore` what is missing; `decide` what only people
know; name the `release`; have the next start read the `whole-log`; end a run of ours that was `interrupted`; mend
`files`, put inert records in place of damage (`neutralise`), rebuild `queues` or `index`, leave queues without a
message in the log as they are (`kept`), mend `config` files: those a
repair does; the next `start` mends it; once the broker is `running`; change `settings` before an upgrade; settings that
are `ignored` can wait; `acknowledge` that something is lost; `none` is needed; `refused`: another finding says why a
start is refused.
"""

_BY_CODE: Mapping[Treatment, tuple[str, ...]] = {
    "stop": ("store.in-use",),
    "access": ("store.unreadable", "store.permission", "commitlog.unreadable"),
    "restore": (
        *("commitlog.gap", "commitlog.last-file-missing", "commitlog.missing"),
        *("commitlog.end-missing", "commitlog.head-missing"),
    ),
    "decide": (
        *("store.mixed", "commitlog.magic-code-v2", "config.rocksdb-damaged", "config.row", "store.rocksdb-damaged"),
        *("timer.row", "timer.row-missing", "timer.too-large"),
    ),
    "release": ("start.depends-on-release",),
    "whole-log": ("start.rows-lost",),
    "interrupted": ("store.interrupted-run",),
    "files": (
        *("store.wrong-kind", "store.dledger-checkpoint"),
        *("commitlog.file-size", "commitlog.empty-file", "commitlog.stray"),
        *("commitlog.stray-directory", "commitlog.overlap", "commitlog.misaligned-file", "commitlog.duplicate-file"),
        *("consumequeue.stray", "checkpoint.missing", "checkpoint.logics-offset"),
        *("timer.wheel-size", "timer.log", "timer.lost", "timer.again", "timer.unit", "timer.ahead"),
    ),
    "neutralise": (
        *("start.data-loss", "start.other-mode-data-loss"),
        *("commitlog.body-crc", "commitlog.lengths", "commitlog.truncated"),
        *("commitlog.magic-code", "commitlog.zeroed", "commitlog.physical-offset", "commitlog.blank"),
        *("commitlog.huge-size", "commitlog.properties", "commitlog.entry-header"),
    ),
    "queues": (
        *("start.hangs", "start.queue-loss", "store.abort-missing"),
        *("consumequeue.zero-file", "consumequeue.garbage-after-end", "consumequeue.gap", "consumequeue.file-size"),
        *("consumequeue.missing-unit", "consumequeue.hole", "consumequeue.wrong-record"),
        *("consumequeue.duplicate-unit", "consumequeue.tags-code", "consumequeue.pre-blank"),
        *("consumequeue.lmq-mismatch", "consumequeue.batch-unit", "consumequeue.ext-address"),
        *("consumequeue.database", "consumequeue.row", "consumequeue.wrong-end", "consumequeue.store-timestamp"),
        "consumequeue.copies-differ",
        *("consumequeue.missing-queue", "consumequeue.behind", "consumequeue.ahead", "consumequeue.empty-file"),
    ),
    "index": (
        *("index.geometry", "index.header", "index.slot", "index.chain", "index.unit", "index.ahead"),
        *("index.missing", "index.name"),
    ),
    "config": (
        *("config.consumer-offset", "config.unreadable", "config.backup-differs", "config.offset-out-of-range"),
        *("config.delay-offset", "config.missing", "config.topic-missing", "config.wrong-offset"),
        *("config.older-copy", "consumequeue.kind"),
    ),
    "start": (
        *("store.unclean-stop", "commitlog.torn", "commitlog.stale-bytes"),
        *("commitlog.stale-records", "commitlog.preallocated", "checkpoint.future"),
    ),
    "running": (
        *("store.disk-full", "store.retention-blocked", "config.topic-permission", "commitlog.future-timestamp"),
    ),
    "settings": ("upgrade.refused",),
    "ignored": ("upgrade.setting",),
    "acknowledge": ("store.recorded-loss",),
    "none": (
        *("commitlog.queue-offset-restart", "commitlog.queue-offset-gap", "consumequeue.shifted"),
        "consumequeue.unread-batches",
        *(
            "commitlog.property-crc",
            "commitlog.sys-flag",
            "commitlog.field",
            "commitlog.body-compression",
            "upgrade.changed",
        ),
        *("index.row", "index.row-missing", "store.half-row", "store.pop-row", "store.dledger-index"),
        "store.compacted-log",
    ),
    "refused": ("start.refuses",),
}

TREATMENTS: Mapping[str, Treatment] = MappingProxyType(
    {code: treatment for treatment, codes in _BY_CODE.items() for code in codes}
)
"""The treatment of each code that a verification reports above information."""

_REFUSED_FOR: Mapping[str, Treatment] = {CONSUME_QUEUE: "queues", BATCH_CONSUME_QUEUE: "queues", INDEX: "index"}


def treatment_of(finding: Finding) -> Treatment:
    """The treatment of one finding.

    A start that only a missing file spoils is not mended by inert records; one that is refused for a file of queues or
    index is mended by a rebuild.
    """
    treatment = TREATMENTS.get(finding.code, "decide")
    if treatment == "neutralise" and finding.code.startswith("start."):
        return "neutralise" if finding.remedy and "rmqtool repair " in finding.remedy else "restore"
    if treatment == "refused":
        return _REFUSED_FOR.get(finding.message.partition("/")[0], treatment)
    return treatment
