"""All that a salvage has found and made, to be shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rmqtool.base.errors import Exit
from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.salvage.carry_over import Carried
from rmqtool.salvage.plan import SalvagePlan
from rmqtool.salvage.selected_log import SelectedLog, needed_bytes
from rmqtool.salvage.selection import Chosen, Selection
from rmqtool.salvage.write_conversion import MovedLog

SalvageState = Literal["planned", "done", "nothing"]


@dataclass(frozen=True)
class Choice:
    """What was chosen; `log` is what was written of it, `not_carried` what of the sources no such store can have."""

    selection: Selection
    chosen: Chosen
    not_carried: Sequence[str] = ()
    log: SelectedLog | None = None

    @property
    def needed(self) -> int:
        """About how many bytes the new store takes."""
        return needed_bytes(self.chosen, self.selection)


@dataclass(frozen=True)
class Salvaged:
    """What was planned or done; `rebuild` is what was derived from the new log, None before it is written.

    Of messages that move `not_carried` are the files that hold physical offsets, `moved` is their log once written.
    """

    plan: SalvagePlan
    carried: Sequence[Carried]
    rebuild: RebuildPlan | None = None
    choice: Choice | None = None
    not_carried: Sequence[str] = ()
    moved: MovedLog | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return self.plan.is_empty or (self.choice is not None and not self.choice.chosen.messages)

    @property
    def state(self) -> SalvageState:
        """What has become of the new store."""
        return "nothing" if self.is_empty else "done" if self.rebuild else "planned"

    @property
    def status(self) -> Exit:
        """The exit status."""
        if self.plan.is_unread or any(each.is_unread for each in self.carried):
            return Exit.LOSSY
        is_left = self.is_empty or self.plan.is_lossy or any(each.problem for each in self.carried)
        findings = self.rebuild.findings if self.rebuild else ()
        is_left = is_left or any(finding.severity == "error" for finding in findings)
        return Exit.FINDINGS if is_left else Exit.OK
