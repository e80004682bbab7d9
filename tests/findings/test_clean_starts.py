"""What pages say that a start after a clean stop derives is what the rules of recovery, and predicted starts, do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.findings.catalogue import CATALOGUE
from rmqtool.findings.finding import Derived
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import RELEASES, Version, parse_version
from tests.verify.small_store import FILE_SIZE, StoreBuilder, finish
from tests.verify.verifying import verify

PAGES = [entry for entry in CATALOGUE.values() if entry.clean_starts]
QUEUES = [("orders", 0), ("orders", 1), ("payments", 0)]
_EACH = 12  # messages


def covers(releases: str, version: Version) -> bool:
    """Whether a label of releases holds one."""
    for part in releases.split(", "):
        first, _, last = part.removesuffix(" and later").partition(" to ")
        end = RELEASES[-1] if part.endswith("and later") else parse_version(last or first)
        if parse_version(first) <= version <= end:
            return True
    return False


def derived_by(version: Version) -> Derived:
    """The kind by the rules of recovery."""
    rules = RecoveryRules.of(version, BrokerConf())
    if rules.dispatches_when_clean:
        return "behind-the-farthest-but-one"
    return "behind-the-farthest" if rules.dispatches_from_queues else "nothing"


def test_the_pages_about_queues_behind_the_log_say_it() -> None:
    """Both of them: a queue that is short, and one that is gone."""
    assert {"consumequeue.behind", "consumequeue.missing-queue"} <= {entry.code for entry in PAGES}


@pytest.mark.parametrize("code", [entry.code for entry in PAGES])
@pytest.mark.parametrize("version", RELEASES, ids=str)
def test_each_release_stands_on_the_page_once(code: str, version: Version) -> None:
    """Under what its rules say."""
    [told] = [each for each in CATALOGUE[code].clean_starts if covers(each.releases, version)]
    assert told.derived == derived_by(version)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.4.0", "4.5.1", "4.9.8", "5.0.0", "5.3.1", "5.3.2", "5.3.3", "5.4.0", "5.5.1"])
def test_predicted_starts_do_it(tmp_path: Path, version: str) -> None:
    """Of queues that are all gone a start derives all, or nothing; of one among others what follows the farthest."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for number in range(_EACH):
        for topic, queue_id in QUEUES:
            builder.put(topic, queue_id=queue_id, body=bytes([number]))
    store = finish(builder.write(tmp_path / "store"), geometry=None)
    kind = derived_by(parse_version(version))
    shutil.rmtree(store / "consumequeue" / "orders" / "0")
    assert derived(store, version)["orders", 0] == 0
    shutil.rmtree(store / "consumequeue")
    assert set(derived(store, version).values()) == {0 if kind == "nothing" else _EACH}


def derived(store: Path, version: str) -> dict[tuple[str, int], int]:
    """How many messages each queue has after the predicted start."""
    start = verify(store, version=version).start
    assert start
    after = {(each.topic, each.queue_id): each.max_offset - each.min_offset for each in start.queues}
    return {queue: after.get(queue, 0) for queue in QUEUES}
