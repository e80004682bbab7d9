"""A plan for people: numbered steps, each with a command that can be pasted as it is."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from rmqtool.base.visible import visible
from rmqtool.clients.losses import ClientLosses
from rmqtool.repair.plan import Plan
from rmqtool.show.output import print_labelled
from rmqtool.show.times import sentence

_INDENT = "     "


def show_plan(plan: Plan, console: Console) -> None:
    """Print what to do."""
    head = Text("What to do", style="bold")
    if plan.start_after:
        head.append(f"  start no broker before step {plan.start_after} is done", style="bold red")
    console.print(head, soft_wrap=True)
    for number, step in enumerate(plan.steps, 1):
        print_labelled(console, Text(f"{number:>3}. "), sentence(step.text))
        if step.command:  # in one piece, so that it can be pasted
            console.print(Text(_INDENT + visible(step.command), style="bold"), soft_wrap=True)
        for change in step.changes:
            print_labelled(console, Text(f"{_INDENT}- ", style="dim"), sentence(change))
        for lost in step.lost:
            print_labelled(console, Text(f"{_INDENT}lost: ", style="yellow"), sentence(lost))
    for text in plan.remaining:
        print_labelled(console, Text("  stays: ", style="dim"), sentence(text))
    if plan.steps and plan.clients is not None:
        print_labelled(console, Text("  after: ", style="dim"), _left_after(plan.clients))


def _left_after(clients: ClientLosses) -> str:
    """What clients do not get even after the plan and a start."""
    refuses = "no broker starts" if clients.refuses else ""
    return ", ".join(filter(None, (refuses, clients.in_words))) or "clients lose nothing"
