"""The step of a plan that ends a run of ours which was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rmqtool.base.paths import is_remote
from rmqtool.base.shell import join
from rmqtool.findings.finding import Finding
from rmqtool.repair.diagnosis import Diagnosis
from rmqtool.repair.plan_step import PlanStep
from rmqtool.transaction.journal import JOURNAL, STATE
from rmqtool.transaction.unfinished import unfinished_deletion

_END = "End the run of rmqtool that was interrupted, and verify again"


def ending_step(diagnosis: Diagnosis, found: Sequence[Finding]) -> PlanStep:
    """End the run that `found` reports; a deletion cannot be taken back, and one without a journal cannot be ended."""
    root = diagnosis.snapshot.store.root
    broken = next((each.file for each in found if each.file and Path(each.file).name in (JOURNAL, STATE)), None)
    if broken is not None:
        run = root / Path(broken).parent
        command = None if is_remote(root) else join(["mv", str(run), f"{root.absolute()}-{run.name}"])
        text = f"Nothing shows how far {run.name} was, whose old/ has what it had replaced. Move it out of the store, "
        text = f"{text}and verify again:"
        return PlanStep(text, command)
    deletion = unfinished_deletion(root) if found else None
    about = f". {deletion.text}; {deletion.to_keep_them}" if deletion else " (rmqtool undo takes it back)"
    return PlanStep(f"{_END}{about}:", diagnosis.command("repair"))
