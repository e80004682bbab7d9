"""Repairs of every fault of brokers, and of every loss of the matrix: see `tests.real_broker.repairs`."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.copies import copied
from tests.real_broker.harness import SHOP_SETTINGS
from tests.real_broker.judged_repairs import Case, judge, survey
from tests.real_broker.loss_stores import Source, committed
from tests.repair.checked_repair import Repair, checked_repair
from tests.repair.known_faults import ACCEPTED, Row, conf_of, rows
from tests.verify import losses_recorded as recorded
from tests.verify.losses import Loss, Scene
from tests.verify.losses_facts import Facts, lost
from tests.verify.losses_together import UNSEEN, all_losses

BATCH = 10


@dataclass(frozen=True)
class Judged:
    """A fault that was repaired: what its users lacked before and after it, by area, and what is wrong."""

    row: Row
    repair: Repair
    before: Mapping[str, str]
    after: Mapping[str, str]
    problems: Sequence[str]


def run_faults(wanted: Iterable[str]) -> Iterator[Judged]:
    """The rows whose fault or name begins so; those of one undamaged store together."""
    beginnings = tuple(wanted) or ("",)
    chosen = [row for row in rows() if row.fault in beginnings or row.name.startswith(beginnings)]
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in chosen:
        groups[row.version, str(row.settings), row.build].append(row)
    for group in groups.values():
        with TemporaryDirectory(prefix="rmqtool-repairs-") as scratch:
            root = group[0].build(Path(scratch, "store"))
            source = Source(group[0].name, root, None, tuple(group[0].keys), group[0].settings)
            yield from _of_one_store(source, group)


def run_matrix(version: str, wanted: Iterable[str]) -> Iterator[Judged]:
    """Those of the losses of `tests.verify.losses` for which the store of the release has something to lose."""
    with TemporaryDirectory(prefix="rmqtool-repairs-") as scratch:
        source = committed(version, Path(scratch))
        settings = {**SHOP_SETTINGS, **source.settings}
        chosen = [loss for loss in all_losses() if loss.name.startswith(tuple(wanted) or ("",))]
        group = [
            Row("", loss.name, partial(_copied, source.store), partial(_lose, loss, source), settings, (), version)
            for loss in chosen if loss.name in recorded.load()[version]
        ]  # fmt: skip
        yield from _of_one_store(source, group, is_matrix=True)


def _copied(store: Path, root: Path) -> Path:
    copied(store, root)
    return root


def _lose(loss: Loss, source: Source, root: Path) -> None:
    loss.apply(Scene(root, source.older, random.Random(loss.name)))


def _of_one_store(source: Source, group: Sequence[Row], *, is_matrix: bool = False) -> Iterator[Judged]:
    """Each of them repaired; the broker is asked about what has changed.

    Of a row of the matrix, for which it was asked before, only where something is missing after the repair.
    """
    undamaged: Facts = {}
    remaining = iter(group)
    while batch := list(islice(remaining, BATCH)):
        with TemporaryDirectory(prefix="rmqtool-repairs-") as scratch:
            if not undamaged:
                [undamaged] = survey(batch[0].version, source, [source.store])
            made = [(row, _case(row, source, Path(scratch, str(number)))) for number, row in enumerate(batch)]
            if is_matrix:
                unchanged = [each for each in made if not _is_changed(each[1])]
                yield from (Judged(row, case.repair, {}, {}, case.repair.problems) for row, case in unchanged)
                made = [each for each in made if each not in unchanged]
            afters = survey(batch[0].version, source, [case.repaired for _, case in made])
            asked = [case.damaged for (_, case), after in zip(made, afters, strict=True)
                     if _is_changed(case) and (not is_matrix or lost(undamaged, after))]  # fmt: skip
            befores = dict(zip(asked, survey(batch[0].version, source, asked), strict=True))
            for (row, case), after in zip(made, afters, strict=True):
                before = befores.get(case.damaged, undamaged if _is_changed(case) else after)
                yield _judged(row, case, undamaged, before, after)


def _is_changed(case: Case) -> bool:
    return (case.repair.result or {}).get("state") == "done"


def _judged(row: Row, case: Case, undamaged: Facts, before: Facts, after: Facts) -> Judged:
    if undamaged["refuses"] is not None:
        refused = {"start": str(undamaged["refuses"])}
        why = [] if row.name in ACCEPTED else [f"refuses the undamaged store: {undamaged['refuses']}"]
        return Judged(row, case.repair, refused, refused, [*case.repair.problems, *why])
    problems = judge(case, undamaged, before, after)
    if row.name in ACCEPTED or row.name in UNSEEN:
        problems = case.repair.problems
    if not row.is_stored:  # a repair may have to refuse
        problems = [each for each in problems if each not in case.repair.problems]
    return Judged(row, case.repair, lost(undamaged, before), lost(undamaged, after), problems)


def _case(row: Row, source: Source, scratch: Path) -> Case:
    scratch.mkdir()
    damaged, repaired = scratch / "damaged", scratch / "repaired"
    copied(source.store, damaged)
    row.apply(damaged)
    copied(damaged, repaired)
    with row.meanwhile(repaired):
        done = checked_repair(repaired, conf_of(row, scratch / "broker.conf"), row.version)
    return Case(row.name, row.name, source, damaged, repaired, done)
