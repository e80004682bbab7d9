"""The walk of one scan over the whole log is the walk of each file by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.log_walk import FileWalk, LogWalker, LogWalks, join_walks, suspects_of
from rmqtool.broker.recovery import Recovery
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import parse_version
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import Store, open_store
from tests.broker.damages import damaged
from tests.building import LogBuilder


def walks_of(store: Store, rules: RecoveryRules, start: int = 0, stop: int = MAX_OFFSET) -> list[FileWalk]:
    """The walks, fed by one scan, as a caller does who scans anyway."""
    files = store.commit_log().files
    walker, dispatcher = LogWalker(files, rules, start, stop), Dispatcher(DispatchRules(rules.version))
    for event in scan_files(files, start, stop):
        if isinstance(event, RecordRun):
            walker.feed(event, suspects_of(event, dispatcher))
        else:
            walker.feed(event)
    return walker.finish()


@pytest.mark.parametrize("seed", range(2003, 2007))
@pytest.mark.parametrize("version", ["4.7.1", "5.5.0"])
def test_one_scan_tells_the_same(version: str, seed: int, tmp_path: Path) -> None:
    """Handed over, the walks give the same prediction as those that are made when they are asked for."""
    store = open_store(damaged(f"{version}-clean", seed, tmp_path).root)
    rules = RecoveryRules.of(parse_version(version), store.conf)
    found = walks_of(store, rules)
    for walk in found:
        alone = LogWalks(rules).of(walk.mapped)
        assert (walk.outcome, walk.end, walk.why) == (alone.outcome, alone.end, alone.why)
        assert (walk.records, walk.readable, walk.readable_behind) == (
            alone.records,
            alone.readable,
            alone.readable_behind,
        )
    given = Recovery(Snapshot(store), rules, LogWalks(rules, found))
    for unclean in (False, True):
        assert given.predict(unclean=unclean) == Recovery(Snapshot(store), rules).predict(unclean=unclean)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(2003, 2009))
@pytest.mark.parametrize("version", ["4.7.1", "5.5.0"])
def test_a_scan_in_parts_tells_the_same(version: str, seed: int, tmp_path: Path) -> None:
    """Wherever the log is cut, pieces give the whole walk, or tell that they do not."""
    store = open_store(damaged(f"{version}-clean", seed, tmp_path).root)
    rules = RecoveryRules.of(parse_version(version), store.conf)
    whole = walks_of(store, rules)
    files = store.commit_log().files
    ends = {walk.mapped: walk.mapped.start_offset + walk.data_end for walk in whole}
    joined = 0
    for file in files:
        for cut in range(file.start_offset + 1, ends.get(file, 0), max(1, ends.get(file, 0) // 20)):
            walks = walks_of(store, rules, 0, cut)
            join_walks(walks, walks_of(store, rules, cut))
            for walk in walks:
                assert not walk.is_whole or walk in whole
            joined += sum(walk.is_whole for walk in walks)
    assert joined or not whole


def test_records_that_only_the_broker_takes_for_records(tmp_path: Path) -> None:
    """A file under another name: the scan finds no record in it, the broker walks through all of them."""
    log = LogBuilder(1024).add_all({"queue_offset": number} for number in range(25))
    log.write(tmp_path)
    paths = sorted((tmp_path / "commitlog").iterdir())
    paths[1].write_bytes(paths[0].read_bytes())
    store = open_store(tmp_path)
    rules = RecoveryRules.of(parse_version("5.3.3"), store.conf)
    for walks in (LogWalks(rules), LogWalks(rules, walks_of(store, rules))):
        first, foreign, last = (walks.of(mapped) for mapped in store.commit_log().files)
        assert (first.outcome, first.records, first.broker_only_records, first.readable) == ("next", 10, 0, 10)
        assert (foreign.outcome, foreign.records, foreign.broker_only_records, foreign.readable) == ("next", 10, 10, 0)
        assert (last.outcome, last.records) == ("end", 5)


def test_bad_records_in_a_row_end_the_walk_at_the_first(tmp_path: Path) -> None:
    """What stands after is counted, the bad ones are not."""
    log = LogBuilder(4096).add_all({"queue_offset": number, "body_crc": number % 3} for number in range(9))
    log.write(tmp_path)
    store = open_store(tmp_path)
    rules = RecoveryRules.of(parse_version("5.3.3"), store.conf)
    walk = LogWalks(rules).of(store.commit_log().files[0])
    assert (walk.outcome, walk.end, walk.records, walk.readable) == ("end", 0, 0, 0)
    assert walk.data_end == log.end
