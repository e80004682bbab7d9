"""One page of the catalogue: what a finding of a code means, wherever it is reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rmqtool.findings.finding import Finding, Severity
from rmqtool.findings.sentence import Says, filled

Treatment = Literal[
    "stop", "access", "restore", "decide", "release", "whole-log", "interrupted", "files", "neutralise", "queues",
    "kept", "index", "config", "start", "running", "settings", "ignored", "acknowledge", "none", "refused",
]  # fmt: skip
"""How a finding is treated, in the order of a plan.

`stop` the broker first; give `access` to what cannot be read; `restore` what is missing; `decide` what only people
know; name the `release`; have the next start read the `whole-log`; end a run of ours that was `interrupted`; fix
`files`, put dummy records in place of damage (`neutralise`), rebuild `queues` or `index`, leave queues without a
message in the log as they are (`kept`), fix `config` files: those a
repair does; the next `start` fixes it; once the broker is `running`; change `settings` before an upgrade; settings that
are `ignored` can wait; `acknowledge` that something is lost; `none` is needed; `refused`: another finding says why a
start is refused.
"""

Derived = Literal["nothing", "behind-the-farthest", "behind-the-farthest-but-one"]
"""What a start after a clean stop derives from the log: what stands after the farthest unit of all queues, or that
without its first record."""


@dataclass(frozen=True)
class CleanStart:
    """What releases (``4.4.0, 4.5.1 to 4.9.8``, ``5.3.2 and later``) derive after a clean stop, and a sentence."""

    releases: str
    derived: Derived
    text: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is the same in all findings of one code.

    `treatment` is how it is treated, None for what needs none, or is of another command than verify; where the fact
    `cause` of a finding says otherwise, `treatment_by_cause`. `about` says whether it describes messages, queues and
    index or what is around them; `is_trace` that an unclean stop leaves it, and a start removes it.
    `says` is the template of its sentence (`sentence.filled`), or one for each value of the fact `problem`, "" for
    all others; `parts` are templates of facts that are words or facts themselves, and `gist` that of a shorter
    sentence, without the evidence.
    `fault` is the number of a known fault of brokers, F01 to F59, or None; `effect` the sentence that a finding
    carries; `versions` pairs of releases and what these do, more exactly; `remedy` the next command, with the fields
    ``{store}``, ``{offset}``, ``{topic}`` and ``{queue_id}``, or None where no command helps; `not_detected` what this
    tool does not see of such a fault, or None. `clean_starts` are what starts after a clean stop derive again; a test
    holds them against the rules of recovery.
    """

    code: str
    fault: str | None = None
    severity: Severity
    treatment: Treatment | None = None
    treatment_by_cause: Mapping[str, Treatment] = field(default_factory=dict, hash=False)
    about: Literal["messages", "surroundings"] = "messages"
    is_trace: bool = False
    title: str
    what: str
    how: str
    says: Says = field(hash=False)
    parts: Mapping[str, Says] = field(default_factory=dict, hash=False)
    gist: str | None = None
    effect: str
    versions: tuple[tuple[str, str], ...]
    repair: str
    remedy: str | None = None
    not_detected: str | None = None
    clean_starts: tuple[CleanStart, ...] = ()

    @property
    def all_versions(self) -> tuple[tuple[str, str], ...]:
        """What releases do, those of `clean_starts` last."""
        starts = ((f"{each.releases}, without the file abort", each.text) for each in self.clean_starts)
        return (*self.versions, *starts)

    def sentence(self, facts: Mapping[str, Any]) -> str:
        """What a finding of this code says, from its facts."""
        return filled(self.says, facts, self.parts)

    def gist_of(self, finding: Finding) -> str:
        """What a finding says without its evidence."""
        return filled(self.gist, finding.facts, self.parts) if self.gist else finding.message

    def treatment_of(self, finding: Finding) -> Treatment:
        """The treatment of one finding of this code; without any, people decide."""
        return self.treatment_by_cause.get(finding.details.get("cause", ""), self.treatment or "decide")
