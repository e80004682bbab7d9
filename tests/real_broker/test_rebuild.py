"""Real brokers on what was rebuilt: they derive the same, they serve every message, and they go on from there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.formats.message import MIN_MESSAGE_SIZE
from tests.commands.running import Result, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.real_broker.harness import GEOMETRY, VERSIONS, Harness
from tests.real_broker.rebuilds import compare
from tests.rebuild.log_damages import DAMAGE as NEUTRALISED
from tests.verify.verifying import codes_of, verify

BROKER = 65_533
"""User and group of a broker that is not root."""

pytestmark = pytest.mark.broker
Factory = Callable[[str], Harness]
_FILES_SCANNED = 10  # from 5.4.0 on a recovery looks at no more
_SAMPLE = range(4)  # seeds of random logs; `make rebuilds` compares 200


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_random_logs_are_derived_as_the_broker_does(harness: Factory, tmp_path: Path, version: str) -> None:
    """Queues, batch queues and index files of random logs, byte for byte, half of the logs torn at their end."""
    harness(version)
    assert [found for found in compare(version, _SAMPLE, tmp_path) if found[1]] == []


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scenario", ["clean", "killed", "trimmed"])
def test_broker_serves_all_of_a_rebuilt_store(
    harness: Factory, golden_store: GoldenStore, tmp_path: Path, version: str, scenario: str
) -> None:
    """Without queues and index, rebuilt: a start finds nothing to do, consumers and queries get what they did."""
    name = f"{version}-{scenario}"
    root = copied(golden_store(name), tmp_path / "store")
    expected = stores.oracle(name)["recovered"]
    for directory in ("consumequeue", "batchconsumequeue", "index"):
        shutil.rmtree(root / directory, ignore_errors=True)
    for command in ("rebuild-cq", "rebuild-index"):
        assert rebuild(command, root, version).status == Exit.OK

    found = harness(version).oracle(root)
    assert not (root / "abort").exists()
    with_messages = {name_of(queue): queue for queue in expected["queues"] if queue["units"] and is_served(queue)}
    after = {name_of(queue): queue for queue in found["recovered"]["queues"]}
    assert set(with_messages) <= set(after)
    for queue, told in with_messages.items():
        assert after[queue]["reachable"] == told["reachable"], queue
        assert after[queue]["max_offset"] == told["max_offset"]
    assert found["recovered"]["commit_log"] == expected["commit_log"]
    assert hits(found["recovered"]) == hits(expected)


_LIVES = (("4.9.4", "light"), ("4.9.4", "trimmed"), ("4.9.4", "trimmed"), ("4.9.7", "trimmed"), ("4.9.7", "clean"))


@pytest.mark.rare
def test_light_queues_that_begin_again_at_each_start(harness: Factory, tmp_path: Path) -> None:
    """4.9.4 forgets their offsets, 4.9.7 goes on at their ends: no alarm, and a rebuild changes nothing."""
    (store := tmp_path / "store").mkdir()
    for version, scenario in _LIVES:
        harness(version).write(store, scenario)
        outcome = verify(store)
        assert codes_of(outcome) <= {"config.offset-out-of-range"}  # of the harness
        assert outcome.verdict == "clean"
        assert rebuild("rebuild-cq", store, version).document["result"]["state"] == "nothing"
    assert any(each.code == "commitlog.queue-offset-restart" for each in outcome.findings)


def is_served(queue: dict[str, Any]) -> bool:
    """Whether a consumer gets any message of it: a queue whose messages are all deleted is not made again."""
    return bool(queue["reachable"])


def name_of(queue: dict[str, Any]) -> tuple[str, str, int]:
    return queue["kind"], queue["topic"], queue["queue_id"]


def hits(answer: dict[str, Any]) -> dict[tuple[str, str], set[int]]:
    """The messages that queries by key find; a unit that stands twice in an index gives one twice."""
    queries = answer["index"]["queries"]
    return {(query["topic"], query["key"]): set(query["physical_offsets"]) for query in queries}


def rebuild(command: str, root: Path, version: str, *options: str) -> Result:
    conf = root.parent / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in GEOMETRY.items()))
    told: list[str | Path] = ["--broker-version", version, "--broker-conf", conf]
    return rmqtool(command, root, "--yes", "--json", *told, *options)


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("damage", NEUTRALISED, ids=lambda damage: damage.__name__)
def test_broker_reads_behind_what_is_neutralised(
    harness: Factory, golden_store: GoldenStore, tmp_path: Path, version: str, damage: Callable[[Path], None]
) -> None:
    """In its worst mode, after a crash and without a checkpoint, a start keeps the whole log and serves it."""
    name = f"{version}-clean"
    root = copied(golden_store(name), tmp_path / "store")
    expected = stores.oracle(name)["recovered"]
    damage(sorted((root / "commitlog").iterdir())[-_FILES_SCANNED:][0])
    done = rebuild("rebuild-cq", root, version, "--neutralise")
    assert (done.status, done.document["result"]["state"]) == (Exit.LOSSY, "done")
    (root / "abort").touch()
    (root / "checkpoint").unlink()

    found = harness(version).recover(root)
    assert found["commit_log"] == expected["commit_log"]
    lost = 0
    after = {name_of(queue): queue for queue in found["queues"]}
    for queue in filter(is_served, expected["queues"]):
        served = {tuple(pair) for pair in after[name_of(queue)]["reachable"]}
        missing = {tuple(pair) for pair in queue["reachable"]} - served
        lost += len(missing)
        assert after[name_of(queue)]["max_offset"] == queue["max_offset"]
    skipped = sum(extent["size"] for extent in done.document["result"]["neutralised"])
    assert 0 < lost <= skipped // MIN_MESSAGE_SIZE


@pytest.mark.rare
@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_broker_goes_on_from_a_rebuilt_store(
    harness: Factory, golden_store: GoldenStore, tmp_path: Path, version: str
) -> None:
    """It appends more, stops cleanly, and nothing is wrong then, neither for us nor for it."""
    root = copied(golden_store(f"{version}-clean"), tmp_path / "store")
    for directory in ("consumequeue", "batchconsumequeue", "index"):
        shutil.rmtree(root / directory, ignore_errors=True)
    for command in ("rebuild-cq", "rebuild-index"):
        assert rebuild(command, root, version).status == Exit.OK
    before = harness(version).oracle(root)["commit_log"]["max_offset"]
    with harness(version).hold(root, messages_per_second=300):
        pass

    assert harness(version).oracle(root)["commit_log"]["max_offset"] > before
    found = rebuild("rebuild-cq", root, version)
    assert found.document["result"]["state"] == "nothing"
    options = ("--broker-version", version, "--broker-conf", root.parent / "broker.conf")
    # The store classes alone write no configuration; ours is for all releases.
    verified = rmqtool("verify", root, *options, "--skip", "config,upgrade")
    assert (verified.status, verified.out.split()[:2]) == (Exit.OK, ["verdict", "unproven"])


@pytest.mark.rare
@pytest.mark.slow
@pytest.mark.skipif(os.name == "posix" and os.geteuid() != 0, reason="only root may rebuild another user's store")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_brokers_own_user_opens_what_root_rebuilt(
    harness: Factory, golden_store: GoldenStore, public_path: Path, version: str
) -> None:
    """As that user it starts on every file, serves all, appends to the same files, and stops."""
    name = f"{version}-clean"
    root = copied(golden_store(name), public_path / "store")
    shutil.rmtree(min((root / "consumequeue").iterdir()))
    for directory in ("consumequeue", "batchconsumequeue"):
        for file in (root / directory).rglob("*"):
            if file.is_file():
                file.write_bytes(bytes(file.stat().st_size))
    shutil.rmtree(root / "index")
    for path in (root, *root.rglob("*")):
        os.chown(path, BROKER, BROKER)
        path.chmod(0o700 if path.is_dir() else 0o600)
    for command in ("rebuild-cq", "rebuild-index"):
        done = rebuild(command, root, version)
        assert (done.status, done.document["result"]["state"]) == (Exit.OK, "done")

    harness(version)  # fetches, as root
    broker = Harness(version, user=BROKER)
    found = broker.recover(root)
    served = {name_of(queue): queue["reachable"] for queue in found["queues"] if is_served(queue)}
    expected = filter(is_served, stores.oracle(name)["recovered"]["queues"])
    assert served == {name_of(queue): queue["reachable"] for queue in expected}
    with broker.hold(root, messages_per_second=300):
        pass
    ours = root / ".rmqtool"
    assert {path.lstat().st_uid for path in root.rglob("*") if ours not in (path, *path.parents)} == {BROKER}
    assert broker.recover(root)["commit_log"]["max_offset"] > found["commit_log"]["max_offset"]
