"""What `verify` says that clients lose is what a real broker says: a few stores; `make clients` judges hundreds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_broker.client_stores import sources
from tests.real_broker.clients import judge_all, make_case
from tests.real_broker.harness import Harness

pytestmark = [pytest.mark.broker, pytest.mark.slow]
Factory = Callable[[str], Harness]
DAMAGES = (
    "queue entries zeroed",
    "killed: abort, and the checkpoint of an index that is not full",
    "queues of a topic deleted",
    "an index file deleted",
)
SEED = 30


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_numbers_are_those_of_the_broker(harness: Factory, tmp_path: Path, version: str) -> None:
    """Before and after the repair; a case that loses nothing would prove nothing."""
    harness(version)
    shop = [source for source in sources(version, tmp_path) if source.name.endswith("-shop")]
    cases = [make_case(version, seed, shop, tmp_path, [damage]) for seed, damage in enumerate(DAMAGES, SEED)]
    judged = list(judge_all(version, cases))
    assert [(each.case.names, each.wrong) for each in judged if each.wrong] == []
    assert [each.case.names for each in judged if each.case.result["start"]["clients"] is None] == []
    assert sum(bool(each.start) for each in judged) >= len(DAMAGES) - 1
