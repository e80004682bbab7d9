"""Steps of a plan for what a repair does not reach: people move it, or have it made elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rmqtool.base.shell import join, quote
from rmqtool.findings.entry import Treatment
from rmqtool.findings.finding import Finding
from rmqtool.repair.diagnosis import Diagnosis
from rmqtool.repair.not_healed import NotHealed
from rmqtool.repair.plan_step import PlanStep
from rmqtool.repair.reach import Replaced, out_of_reach
from rmqtool.store.store import COMMIT_LOG, Store

_MAX_MOVED, _MAX_NAMED = 20, 3  # entries of one command, and in its sentence; the next verification has the rest
_STRAYS = ("commitlog.stray", "commitlog.stray-directory", "commitlog.empty-file", "commitlog.duplicate-file")
_MADE_ANEW_BY_A_NODE = {
    "store.dledger-index": "Move the index of the entries away: the node makes all of it again when it starts:",
    "store.dledger-checkpoint": "Move the node's checkpoint away, without which it starts:",
}
_WHERE = "outside of the store, after a link or on another disk, where a repair replaces nothing"


def log_by_hand(store: Store, found: Mapping[Treatment, Sequence[Finding]]) -> tuple[Path, ...]:
    """The directories of a log that is damaged and out of reach; strays are named one by one elsewhere."""
    treated = (*found.get("neutralise", ()), *found.get("files", ()))
    is_damaged = any(each.code.startswith(("commitlog.", "start.")) and each.code not in _STRAYS for each in treated)
    return out_of_reach(store, "neutralise") if is_damaged else ()


def steps_by_hand(diagnosis: Diagnosis, found: Mapping[Treatment, Sequence[Finding]]) -> Iterator[PlanStep]:
    """A step for each part that should be repaired and is out of reach: people move it, or have it made elsewhere."""
    store = diagnosis.snapshot.store
    log = log_by_hand(store, found)
    if log:
        text = f"{_named(log)}. Move the log to {quote(str(store.root / COMMIT_LOG))} and verify again, or make a new "
        yield PlanStep(f"{text}store of what is sound and start the broker on that:",
                       f"{diagnosis.command('salvage')} --output NEW")  # fmt: skip
    commands: dict[Replaced, str] = {"queues": "rebuild-cq", "index": "rebuild-index"}
    for treatment, command in commands.items():
        directories = out_of_reach(store, treatment)
        if treatment in found and directories:
            text = f"{_named(directories)}. Move it into the store and verify again, or have it made elsewhere:"
            yield PlanStep(text, f"{diagnosis.command(command)} --output DIR")
    config = out_of_reach(store, "config")
    if "config" in found and config:
        yield PlanStep(f"{_named(config)}. Move it into the store, and verify again.")


def moving_step(notes: Iterable[NotHealed]) -> Iterator[PlanStep]:
    """The step that takes entries out of the way that no repair reaches: it comes first, for a start refuses them."""
    paths = [path for note in notes for path in note.moved]
    if paths:
        names = ", ".join(quote(str(path)) for path in paths[:_MAX_NAMED])
        more = f" and {len(paths) - _MAX_NAMED} more" if len(paths) > _MAX_NAMED else ""
        text = f"Move {names}{more} out of the way, to a directory outside the store, and verify again; no repair "
        command = join(["mv", *map(str, paths[:_MAX_MOVED]), "DIRECTORY"])
        yield PlanStep(f"{text}reaches {'it' if len(paths) == 1 else 'them'}:", command)


def steps_of_node(findings: Iterable[Finding]) -> dict[str, PlanStep]:
    """A step for each code of what a DLedger node makes again when it is moved away."""
    found = {each.code: each.next_command for each in findings if each.code in _MADE_ANEW_BY_A_NODE}
    return {code: PlanStep(_MADE_ANEW_BY_A_NODE[code], str(command)) for code, command in found.items() if command}


def _named(directories: Sequence[Path]) -> str:
    names = ", ".join(quote(str(each)) for each in directories)
    return f"{names}: {_WHERE}"
