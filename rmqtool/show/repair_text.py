"""A repair for people: what it changes, one by one, and what it leaves."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from rmqtool.base.visible import quote
from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.repair.change import Change
from rmqtool.repair.diagnosis import Repairs
from rmqtool.repair.plan import Plan
from rmqtool.repair.proof import Proof
from rmqtool.show import rebuild as rebuild_text
from rmqtool.show.output import Style, print_labelled
from rmqtool.show.times import sentence
from rmqtool.show.verify import show_plan, show_verdict
from rmqtool.verify.outcome import Outcome


def show_found(
    outcome: Outcome, plan: Plan, repairs: Repairs | None, rebuild: RebuildPlan | None, style: Style
) -> None:
    """Show each change with its details and those of the rebuild, and last, what is left to read: verdict and plan."""
    console = style.console()
    for change in repairs.changes if repairs else ():
        _show_change(change, console)
    if rebuild:
        rebuild_text.show_plan(rebuild, style, verb="planned")
    if repairs:
        console.print()
    show_verdict(console, outcome)
    if plan:
        show_plan(plan, console)


def show_proof(proof: Proof, root: Path, style: Style) -> None:
    """Show what a start of the repaired store takes from clients that the plan did not say."""
    console = style.console()
    for each in proof.more_lost:
        print_labelled(console, Text("not as planned: ", style="bold red"), sentence(str(each)))
    if proof.more_lost:
        console.print(Text(f"  take the repair back: rmqtool undo {quote(str(root))}", style="bold"), soft_wrap=True)


def _show_change(change: Change, console: Console) -> None:
    print_labelled(console, Text("change  "), sentence(change.what))
    for detail in change.details:
        print_labelled(console, Text("        "), sentence(detail))
    if change.lost:
        print_labelled(console, Text("        lost: ", style="yellow"), sentence(change.lost))
