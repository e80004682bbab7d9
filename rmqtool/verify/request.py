"""What is asked of a verification."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from rmqtool.findings.report import Selection
from rmqtool.rules.versions import Version
from rmqtool.scan.topic_choice import TopicChoice
from rmqtool.store.splits import PART_SIZE

EarlyEnd = Literal["time-limit", "sample"]
"""What ends a verification before all is looked at: the time is up, or the rest was not asked for."""


@dataclass(frozen=True)
class VerifyRequest:
    """The options of a verification.

    `rate` is in bytes per second, `time_limit` of log and index in seconds, `sample` the share of both to look at.
    """

    version: Version | None = None
    selection: Selection = field(default_factory=Selection)
    max_examples: int = 10
    jobs: int = 1
    bodies: bool = True
    rate: int | None = None
    part_size: int = PART_SIZE
    time_limit: float | None = None
    sample: float | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The options on which the results of parts depend, as on a command line."""
        given = [("--only", code) for code in self.selection.only] + [("--skip", code) for code in self.selection.skip]
        if isinstance(topics := self.selection.topics, TopicChoice):
            given += [("--topic", topic) for topic in topics.wanted]
            given += [("--exclude-topic", topic) for topic in topics.excluded]
        if self.version:
            given.append(("--broker-version", str(self.version)))
        if self.max_examples != VerifyRequest.max_examples:
            given.append(("--max-examples", str(self.max_examples)))
        return (*chain.from_iterable(given), *([] if self.bodies else ["--fast"]))
