"""A verification as a repair sees it: the findings by what becomes of them, and what a repair does about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import join

from rmqtool.findings.finding import Finding
from rmqtool.repair.change import Change
from rmqtool.repair.treatments import Treatment, treatment_of
from rmqtool.store.snapshot import Snapshot


@dataclass(frozen=True)
class Diagnosis:
    """A verification as a plan sees it: findings above information, and messages by topic that cannot be read.

    `mended` says that the next start mends all of it without loss. `options` are the words that each command of the
    plan needs, such as ``--broker-conf FILE``.
    """

    snapshot: Snapshot
    findings: Sequence[Finding]
    lost: Mapping[str, int] = field(default_factory=dict)
    mended: bool = False
    options: tuple[str, ...] = ()

    @property
    def by_treatment(self) -> dict[Treatment, list[Finding]]:
        """The findings, each under its treatment."""
        found: dict[Treatment, list[Finding]] = defaultdict(list)
        for finding in self.findings:
            found[treatment_of(finding)].append(finding)
        return found

    def command(self, name: str, *more: str) -> str:
        """A command line on the store that can be pasted."""
        return join(["rmqtool", name, str(self.snapshot.store.root), *self.options, *more])


@dataclass(frozen=True)
class Repairs:
    """What one repair does: changes of its own, and whether queues and index are rebuilt and damage neutralised."""

    changes: tuple[Change, ...] = ()
    queues: bool = False
    index: bool = False
    neutralise: bool = False

    @property
    def first(self) -> tuple[Change, ...]:
        """The changes after which the log has to be read anew; they have a transaction of their own."""
        return tuple(change for change in self.changes if change.changes_log)

    def __bool__(self) -> bool:
        """Whether there is anything to repair."""
        return bool(self.changes or self.queues or self.index or self.neutralise)


def repairs_of(diagnosis: Diagnosis, *, keep_offsets: bool = False) -> Repairs:  # noqa: ARG001
    """What `rmqtool repair` does about the findings; with `keep_offsets` it leaves committed offsets alone."""
    found = diagnosis.by_treatment
    if diagnosis.mended or diagnosis.snapshot.holder is not None:
        return Repairs()
    return Repairs(
        changes=(),
        queues="queues" in found or "neutralise" in found or _ends_behind_log(diagnosis.findings),
        index="index" in found or ("neutralise" in found and bool(diagnosis.snapshot.index_files)),
        neutralise="neutralise" in found,
    )


def _ends_behind_log(findings: Sequence[Finding]) -> bool:
    """Whether units point behind the log's end: a start would cut them, and a rebuild does."""
    return any(finding.code == "commitlog.last-file-missing" for finding in findings)
