"""What a verification finds wrong, as a selection for a rebuild."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtool.rules.versions import Version
from rmqtool.show.output import Style

if TYPE_CHECKING:
    from rmqtool.base.files import RateLimit
    from rmqtool.findings.finding import Finding
    from rmqtool.store.store import Store

_EVERY = 1 << 31  # examples: each finding names its queue
_QUEUES = "consumequeue."
_INDEX = "index."


def damaged_queues(
    style: Style, store: Store, version: Version | None, limit: RateLimit | None, jobs: int
) -> frozenset[tuple[str, int]]:
    """Topic and queue id of each queue with a finding above `info`."""
    findings = _verify(style, store, version, limit, jobs, _QUEUES)
    found = ((finding.topic, finding.queue_id) for finding in findings)
    return frozenset((topic, queue_id) for topic, queue_id in found if topic is not None and queue_id is not None)


def damaged_index(style: Style, store: Store, version: Version | None, limit: RateLimit | None, jobs: int) -> bool:
    """Whether any index file has a finding above `info`."""
    return bool(_verify(style, store, version, limit, jobs, _INDEX))


def _verify(
    style: Style, store: Store, version: Version | None, limit: RateLimit | None, jobs: int, prefix: str
) -> list[Finding]:
    from rmqtool.findings.report import Selection
    from rmqtool.show.progress import byte_progress
    from rmqtool.verify.outcome import outcome_of
    from rmqtool.verify.verification import Verification, VerifyRequest

    rate = limit.bytes_per_second if limit else None
    request = VerifyRequest(version, Selection((prefix,)), max_examples=_EVERY, rate=rate, jobs=jobs)
    verification = Verification(store, request)
    done = 0
    with byte_progress("verifying", verification.total_bytes, quiet=style.quiet) as bar:

        def progress(size: int) -> None:
            nonlocal done
            done += size
            bar.update(done)

        verification.run(progress)
    found = [finding for finding in outcome_of(verification).findings if finding.severity != "info"]
    return [finding for finding in found if finding.code.startswith(prefix)]
