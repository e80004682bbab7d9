"""A real broker starts on repaired config files, and its users have what they had (`tests.repair`)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.copies import copied
from tests.golden import stores
from tests.real_broker.harness import Harness
from tests.repair.config_store import commit, findings_of, planned
from tests.verify.config_losses import OFFSETS, Apply, both, edited, gone, holds, offsets_to, older_table, path_of
from tests.verify.losses_facts import Facts, lost

pytestmark = [pytest.mark.broker, pytest.mark.slow]

_SAVED = "topics.json", "subscriptionGroup.json", "delayOffset.json"


class Case(NamedTuple):
    """What happens to a store, whether offsets may be moved, and the areas in which its users have less in the end."""

    apply: Apply
    moves_offsets: bool = False
    left: frozenset[str] = frozenset()


def cut(*names: str, backup: bool = True) -> Apply:
    """Files, and their .bak, end in their last third."""

    def apply(store: Path) -> None:
        for path in (path_of(store, name) for name in names):
            for each in (path, path.with_name(f"{path.name}.bak")) if backup else (path,):
                if each.exists():
                    os.truncate(each, each.stat().st_size * 3 // 4)

    return apply


def backed_up(store: Path) -> None:
    """Each .bak is as the file."""
    for name in (*_SAVED, OFFSETS):
        shutil.copy(path_of(store, name), f"{path_of(store, name)}.bak")


def older_backup(store: Path) -> None:
    """The offsets' .bak was written three messages before, and a half of the file is left."""
    backed_up(store)
    backup = path_of(store, OFFSETS)
    edited(OFFSETS, offsets_to(lambda offset: max(0, offset - 3)), both=False)(store)
    older, newer = backup.read_bytes(), Path(f"{backup}.bak").read_bytes()
    Path(f"{backup}.bak").write_bytes(older)
    backup.write_bytes(newer[:-4])


CASES: Mapping[str, Case] = {
    "topics, groups and delays deleted": Case(gone(*_SAVED)),
    "topics, groups and delays cut": Case(cut(*_SAVED)),
    "topics, groups and delays of zeros": Case(both(*(holds(name, "\0" * 99, "\0" * 99) for name in _SAVED))),
    "all cut, with a .bak": Case(both(backed_up, cut(*_SAVED, OFFSETS, backup=False))),
    "topics older than the log": Case(older_table),
    "offsets cut, with an older .bak": Case(older_backup),
    "offsets far beyond": Case(
        edited(OFFSETS, offsets_to(lambda offset: offset + 100_000)), True, frozenset({"committed"})
    ),
    "offsets garbage": Case(holds(OFFSETS, "{garbage", "{garbage"), True, frozenset({"committed"})),
}


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3", "5.5.0"])
def test_a_broker_has_what_it_had(harness: Callable[[str], Harness], version: str, tmp_path: Path) -> None:
    """Topics, groups, offsets, delays and messages of each repaired store are those of the undamaged one."""
    source = stores.unpack(f"{version}-shop", tmp_path)
    roots = [source]
    for number, case in enumerate(CASES.values()):
        root = tmp_path / str(number)
        copied(source, root)
        case.apply(root)
        commit(root, planned(root, findings_of(root, version), version, offsets=case.moves_offsets))
        roots.append(root)
    before, *after = harness(version).survey([(root, ()) for root in roots])
    assert before["refuses"] is None
    differing = {name: lost(before, facts) for name, facts in zip(CASES, after, strict=True)}
    assert {name: set(areas) for name, areas in differing.items()} == {
        name: set(case.left) for name, case in CASES.items()
    }, differing
    assert_at_the_end(after[[*CASES].index("offsets far beyond")])


def assert_at_the_end(facts: Facts) -> None:
    """Every committed offset of a queue with messages is the queue's maximum."""
    ends = {name: queue["max_offset"] for name, queue in facts["queues"].items()}
    committed = {name: offset for name, offset in facts["committed"].items() if "/" in name}
    moved = {name: offset for name, offset in committed.items() if _queue_of(name) in ends}
    assert len(moved) > 5
    assert moved == {name: ends[_queue_of(name)] for name in moved}


def _queue_of(name: str) -> str:
    """Of ``topic@group/queue``: ``topic/queue``."""
    topic, _, rest = name.partition("@")
    return f"{topic}/{rest.rpartition('/')[2]}"
