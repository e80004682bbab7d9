"""``--only-damaged``: a verification first, whose findings select what a rebuild rebuilds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import rmqtool
from rmqtool.commands.rebuild_request import RebuildRequest
from rmqtool.commands.verifying import progress_bar
from rmqtool.show.output import Style

if TYPE_CHECKING:
    from rmqtool.findings.finding import Finding

_ALL_EXAMPLES = 1 << 31  # each finding names its queue


def select_damaged(style: Style, request: RebuildRequest) -> None:
    """Select the queues, or the index, with a finding above `info`; nothing at all without one."""
    options = request.options
    if request.part == "index":
        wanted = bool(_verify(style, request, "index."))
    else:
        queues = ((finding.topic, finding.queue_id) for finding in _verify(style, request, "consumequeue."))
        only = frozenset((topic, queue_id) for topic, queue_id in queues if topic is not None and queue_id is not None)
        wanted = bool(only)
        options = replace(options, selection=replace(options.selection, only=only))
    request.options = options if wanted else replace(options, parts=frozenset())


def _verify(style: Style, request: RebuildRequest, prefix: str) -> list[Finding]:
    """The findings above `info` whose code begins with `prefix`."""
    store = rmqtool.open(request.path, broker_conf=request.broker_conf, broker_version=request.broker_version,
                         limit_rate=request.limit_rate)  # fmt: skip
    with progress_bar(style, "verifying") as progress:
        verified = store.verify(only=prefix, max_examples=_ALL_EXAMPLES, jobs=request.jobs, progress=progress)
    return [finding for finding in verified.findings if finding.severity != "info" and finding.code.startswith(prefix)]
