"""Damaged or lost config files are put back, and what was readable stays as it was."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from rmqtool.findings.finding import Finding
from rmqtool.repair.change import FileChange
from rmqtool.repair.config_files import config_changes, unhealed_config
from rmqtool.repair.proven_entries import group_topics, proven_topics, seen_queues
from rmqtool.rules.versions import Version
from rmqtool.store.config_json import parse_fastjson
from rmqtool.store.config_text import member_text
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.copies import copied
from tests.findings.made import made
from tests.golden import stores
from tests.repair.config_damages import damage
from tests.repair.config_store import commit, contents, entries_of, findings_of, planned, still_found, undo
from tests.unchanged import snapshot
from tests.unreadable import forbidden
from tests.verify.config_losses import LOSSES, gone, holds, older_table
from tests.verify.damages import delay_ahead
from tests.verify.small_store import small_store

RELEASES = ("4.4.0", "4.9.7", "5.3.3", "5.5.0")
OFTEN = "5.5.0"
HEALED = [
    pytest.param(release, name, marks=() if release == OFTEN or not OFTEN.startswith(loss.only) else pytest.mark.rare)
    for release in RELEASES
    for name, loss in LOSSES.items()
    if release.startswith(loss.only)
]
LEFT = {
    *("topics, before .bak", "retry topic, perm", "half topic, perm"),
    *("offsets", "offsets, another table", "offsets, emptied", "offsets, no table"),
    *("offsets, 0", "offsets, -10", "offsets, below .bak", "offsets, a day old"),
}
"""Losses of which something is left that the store does not show, or that people decide."""
HALVES_LEFT = {("5.5.0", "offsets, +100000"), ("5.5.0", "offsets, 2^62")}
"""Where half messages wait before the end of their queue, to which the offset of the transaction group is moved."""


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize(("release", "name"), HEALED)
def test_what_is_said_to_heal_is_healed(release: str, name: str, tmp_path: Path) -> None:
    """Each loss, repaired: its finding is gone or has a reason why not, a second run plans nothing, undo undoes."""
    store = stores.unpack(f"{release}-shop", tmp_path)
    LOSSES[name].apply(store)
    before, findings = snapshot(store), findings_of(store, release)
    changes = planned(store, findings, release, offsets=True)
    commit(store, changes)
    after = findings_of(store, release)
    assert still_found(changes, after) == []
    left = [each for each, _ in unhealed_config(findings, changes, offsets=True)]
    worse = [each for each in after if each.severity != "info" and each.code.startswith(("config.", "start."))]
    assert bool(worse) == (name in LEFT or "config/" in name or (release, name) in HALVES_LEFT), worse
    assert bool(left) == bool(worse)
    if name != "offsets, no table":  # whose files are gone: then there are none
        assert planned(store, after, release, offsets=True) == []
    undo(store)
    assert contents(store) == {path: entry.content for path, entry in before.items()}


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", ["4.9.7-shop", "5.3.3-shop"])
def test_random_damage(name: str, seed: int, tmp_path: Path) -> None:
    """What was said to heal is healed, what was readable stays, what is left has a reason, and once is enough."""
    store = stores.unpack(name, tmp_path)
    done = damage(store, Random(f"{name} {seed}"))
    release = name.partition("-")[0]
    before, findings = entries_of(store), findings_of(store, release)
    changes = planned(store, findings, release)
    commit(store, changes)
    after = findings_of(store, release)
    assert still_found(changes, after) == [], done
    assert before.items() <= entries_of(store).items(), done
    left = {(each.code, each.file) for each, _ in unhealed_config(findings, changes, offsets=False)}
    bad = {(each.code, each.file) for each in after if each.code.startswith("config.") and each.severity != "info"}
    assert bad - {("config.wrong-offset", f"config/{OFFSETS_OF[release]}")} <= left, done
    assert planned(store, after, release) == [], done


OFFSETS_OF = {"4.9.7": "lmqConsumerOffset.json", "5.3.3": "lmqConsumerOffset.json"}
"""Where the committed offsets of a shop are: a group whose entry is lost looks as if it had consumed nothing."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A stopped store of a whole broker."""
    return stores.unpack("5.3.3-shop", tmp_path)


def lost(name: str, code: str = "config.missing") -> Finding:
    """The finding about one file."""
    return made(code, "", file=f"config/{name}")


def test_topics_by_their_queues(store: Path) -> None:
    """Each with its queues, retry topics with one, batch queues with their attribute; none of the broker's own."""
    gone("topics.json")(store)
    path = store / "config" / "lmqConsumerOffset.json"
    path.write_text(path.read_text().replace("{0:5", "{0:5,2:0"))  # a third queue of reminders, without a message
    (change,) = planned(store, [lost("topics.json")], "5.3.3")
    table = parse_fastjson((change.content or b"").decode())["topicConfigTable"]
    assert {name: topic["readQueueNums"] for name, topic in table.items()} == {
        "bulk": 1,
        "orders": 4,
        "payments": 2,
        "reminders": 3,
        "vouchers": 1,
        "RMQ_SYS_TRANS_HALF_TOPIC": 1,
        "%DLQ%billing": 1,
        **{f"%RETRY%{group}": 1 for group in ("billing", "desk", "gifts", "reminding")},
    }
    assert table["bulk"]["attributes"] == {"queue.type": "BatchCQ"}
    assert "topic orders: 4 queues" in change.details
    assert "message.type" in (change.lost or "")
    assert "stateVersion" in (change.content or b"").decode()


def test_a_release_is_not_taken_for_a_newer_one(tmp_path: Path) -> None:
    """What may be of 4.x gets nothing that shows 5.0."""
    store = stores.unpack("4.9.7-shop", tmp_path)
    gone("topics.json", "delayOffset.json")(store)
    changes = planned(store, [lost("topics.json"), lost("delayOffset.json")])
    assert b"stateVersion" not in b"".join(change.content or b"" for change in changes)
    commit(store, changes)
    assert Snapshot(open_store(store)).releases.oldest < Version(5, 0, 0)


def test_whole_entries_stay_as_they_are_written(store: Path) -> None:
    """Of a file that is cut, with a .bak that is garbage: each entry byte for byte, in its order, and no other."""
    path = store / "config" / "topics.json"
    text = path.read_text()
    path.write_text(text[: text.index('"vouchers":{') + 40])
    path.with_name("topics.json.bak").write_text("{garbage")
    main, backup = planned(store, [lost("topics.json", "config.unreadable")], "5.3.3")
    content = (main.content or b"").decode()
    end = text.index(',\n\t\t"vouchers"')
    assert text[text.index('"topicConfigTable"') : end] in content
    assert content.index('"orders"') < content.index('"vouchers"')
    assert backup.name.endswith(".bak")
    assert backup.content == main.content


def test_entries_of_a_table_whose_name_is_damaged(store: Path) -> None:
    """They name themselves; nothing else in the file is taken for a topic or a group."""
    for name, table in (("topics.json", "topicConfigTable"), ("subscriptionGroup.json", "subscriptionGroupTable")):
        before = entries_of(store)
        path = store / "config" / name
        path.write_text(path.read_text().replace(table, "x\0", 1))
        path.with_name(f"{name}.bak").unlink()
        commit(store, planned(store, [lost(name, "config.unreadable")], "5.3.3"))
        assert entries_of(store) == before


def test_newer_offsets_of_a_damaged_file(store: Path) -> None:
    """What its queue has and the .bak has less of is kept; less, and beyond the end, is not."""
    path = store / "config" / "lmqConsumerOffset.json"
    text = path.read_text()
    path.with_name("lmqConsumerOffset.json.bak").write_text(text.replace("{0:15,1:15,2:15,3:15", "{0:9,1:9,2:9,3:9"))
    path.write_text(text.replace("{0:15,1:15,2:15,3:15", "{0:15,1:8,2:18,3:17")[:-2])
    main, *_ = planned(store, [lost("consumerOffset.json", "config.consumer-offset")], "5.3.3")
    assert parse_fastjson((main.content or b"").decode())["offsetTable"]["orders@desk"] == {
        "0": 15,
        "1": 9,
        "2": 9,
        "3": 17,
    }
    assert main.details[0] == "group desk, orders queue 0: 15 (its .bak has 9)"
    assert main.what.endswith("restored from its .bak; with 2 newer offsets of the damaged file")


def test_an_added_topic_counts_as_a_change(store: Path) -> None:
    """The counter grows by one, the .bak is the file before, and nothing else of the file changes."""
    path = store / "config" / "topics.json"
    older_table(store)
    path.with_name("topics.json.bak").write_bytes(path.read_bytes())
    before = path.read_bytes()
    found = [replace(lost("topics.json", "config.topic-missing"), topic="orders")]
    main, *others = planned(store, found, "5.3.3")
    assert others == []  # the .bak is the file before already
    content = (main.content or b"").decode()
    added = member_text("orders", parse_fastjson(content)["topicConfigTable"]["orders"])
    assert '"counter": 3' in content
    plain = content.replace('"counter": 3', '"counter": 2').replace(f",\n\t\t{added}", "")
    assert plain.encode() == before


def test_offsets_one_by_one(store: Path) -> None:
    """Beyond the end, negative, and of a light queue; asked for only, and the .bak too, so that they stay away.

    Where the .bak has another offset that the queue has, somebody may prefer it.
    """
    path = store / "config" / "lmqConsumerOffset.json"
    text = (
        path.read_text().replace("{0:15,1:15,", "{0:100000,1:-7,").replace("{}", '{"%LMQ%alice@reader":1099511627776}')
    )
    path.write_text(text)
    older = text.replace("{0:100000,1:-7,", "{0:13,1:99,")
    path.with_name("lmqConsumerOffset.json.bak").write_text(older)
    wrong = [made("config.wrong-offset", "", file="config/lmqConsumerOffset.json")]
    assert planned(store, wrong, "5.3.3") == []
    main, backup = planned(store, wrong, "5.3.3", offsets=True)
    assert set(main.details) == {
        "group desk, orders queue 0: 100000 -> 17 (the end; its .bak has 13)",
        "group desk, orders queue 1: -7 -> 0 (the beginning)",
        "group reader, %LMQ%alice queue 0: 1099511627776 -> 6 (the end)",
    }
    expected = text.replace("{0:100000,1:-7,", "{0:17,1:0,").replace("1099511627776", "6")
    assert main.content == expected.encode()
    assert backup.content == expected.replace("{0:17,1:0,", "{0:13,1:17,").encode()


def test_groups_of_retry_topics() -> None:
    """Those of pop consumers name the topic after the group, by ``_`` and by ``+``."""
    topics = ["orders", "%RETRY%desk", "%DLQ%billing", "%RETRY%my_group_orders", "%RETRY%pop+payments", "%RETRY%a_b"]
    assert sorted(group_topics(topics)) == ["a_b", "billing", "desk", "my_group", "pop"]


@pytest.mark.slow
def test_compaction_is_proven_by_its_log(tmp_path: Path) -> None:
    """A topic with a compaction log gets its policy back."""
    store = stores.unpack("more/5.3.3-compacted", tmp_path)
    snapshot = Snapshot(open_store(store))
    topics = proven_topics(snapshot.store, seen_queues(snapshot, in_log=False), (), ())
    assert {name for name, topic in topics.items() if topic.get("attributes", {}).get("cleanup.policy")} == {"state"}


@pytest.mark.parametrize("content", ["", "null", "[]", "{", '{"topicConfigTable":5}', '{"x":{"topicConfigTable":{}}}'])
def test_bad_files_are_no_error(store: Path, content: str) -> None:
    """Whatever is in the files, main and .bak: topics are written again."""
    holds("topics.json", content, content)(store)
    main, *_ = planned(store, [lost("topics.json"), lost("topics.json", "config.unreadable")], "5.3.3")
    assert "orders" in parse_fastjson((main.content or b"").decode())["topicConfigTable"]


@pytest.mark.parametrize("attributes", ["{}", '{"queue.type":"SimpleCQ"}', '{"+queue.type":"x","a":"b"}', "null", ""])
def test_the_type_of_queues(store: Path, attributes: str) -> None:
    """A topic with batch queues is configured for them again, whatever its attributes are; others keep theirs."""
    path = store / "config" / "topics.json"
    text = path.read_text()
    old = text[text.index('"attributes":{\n\t\t\t\t"queue.type"') : text.index('"order"', text.index('"bulk"'))]
    path.write_text(text.replace(old, f'"attributes":{attributes},' if attributes else ""))
    kind = made("consumequeue.kind", "", topic="bulk", queue_id=0)
    if attributes == "null":
        path.write_text(path.read_text().replace('"attributes":null,', ""))
    main, *_ = planned(store, [kind], "5.3.3")
    assert main.codes == {"consumequeue.kind"}
    assert main.details == ("topic bulk: queue.type BatchCQ, as its queues are",)
    commit(store, [main])
    topics = Snapshot(open_store(store)).topics
    assert set(topics.with_batch_queues or ()) == {"bulk"}
    assert topics.by_name["bulk"].attributes.get("a") == ("b" if '"b"' in attributes else None)
    assert "consumequeue.kind" not in {each.code for each in findings_of(store, "5.3.3")}


def test_topics_with_queues_of_both_kinds_are_left(store: Path) -> None:
    """Nothing says which of them its messages are in."""
    copied(store / "batchconsumequeue" / "bulk", store / "consumequeue" / "bulk")
    kind = made("consumequeue.kind", "", topic="bulk", queue_id=0)
    assert planned(store, [kind], "5.3.3") == []


def test_groups_of_offsets_that_are_put_back(store: Path) -> None:
    """Offsets come first: the groups that they name are made again, and have their retry topics."""
    config = store / "config"
    gone("subscriptionGroup.json", "topics.json")(store)
    (config / "lmqConsumerOffset.json").rename(config / "delayOffset.json")
    (config / "lmqConsumerOffset.json.bak").unlink()
    names = ("lmqConsumerOffset.json", "subscriptionGroup.json", "topics.json")
    changes = {each.name: each for each in planned(store, [lost(name) for name in names], "5.3.3")}
    assert "its content is in delayOffset.json" in changes["config/lmqConsumerOffset.json"].what
    assert "group desk: default settings" in changes["config/subscriptionGroup.json"].details
    assert "topic %RETRY%desk: 1 queue" in changes["config/topics.json"].details


def test_the_reasons_for_what_is_left(store: Path) -> None:
    """Each finding above information that no change heals has a sentence; those that one heals have none."""
    gone("lmqConsumerOffset.json")(store)
    found = [
        *(lost("lmqConsumerOffset.json"), lost("topics.json", "config.older-copy")),
        made("config.topic-permission", "", file="config/topics.json", topic="%RETRY%desk"),
        made("start.refuses", "neither", details={"cause": "config", "file": "config/lmqConsumerOffset.json"}),
        made("config.wrong-offset", "", file="config/lmqConsumerOffset.json"),
        made("config.offset-out-of-range", "", severity="info"),
    ]
    reasons = {each.code: why for each, why in unhealed_config(found, [], offsets=False)}
    assert set(reasons) == {each.code for each in found if each.severity != "info"}
    assert "resetOffsetByTime" in reasons["config.missing"]
    assert "--keep-offsets" in reasons["start.refuses"]
    codes = frozenset({"config.missing", "start.refuses"})
    change = FileChange(codes=codes, what="x", name="config/lmqConsumerOffset.json", content=b"")
    left = {each.code for each, _ in unhealed_config(found, [change], offsets=True)}
    assert left == {"config.older-copy", "config.topic-permission", "config.wrong-offset"}


@pytest.mark.parametrize("name", ["timermetrics", "consumerOrderInfo.json", "consumerFilter.json"])
def test_a_backup_with_the_content_of_another_file(store: Path, name: str) -> None:
    """It is not put back: a file that may be empty is made empty, and the .bak as well."""
    path = store / "config" / name
    path.write_text("{")
    path.with_name(f"{name}.bak").write_bytes((store / "config" / "lmqConsumerOffset.json").read_bytes())
    main, backup = planned(store, [lost(name, "config.unreadable")], "5.3.3")
    assert main.what.endswith("made empty")
    assert main.content == backup.content


@pytest.mark.parametrize("name", ["topics.json", "topics.json.bak", ""])
def test_what_may_not_be_read_is_not_replaced(store: Path, name: str) -> None:
    """Another user, or a disk that is fixed, may still have all that is in it."""
    found = [lost("topics.json", "config.unreadable"), lost("topics.json")]
    (store / "config" / "topics.json").write_text("{")
    path = store / "config" / name
    there = Snapshot(open_store(store))
    assert config_changes(there, found, offsets=True) != []
    with forbidden(path):
        assert config_changes(there, found, offsets=True) == [] or not name
    if not name:
        shutil.rmtree(path)
        path.write_text("a file in place of the directory")
        assert config_changes(Snapshot(open_store(store)), found, offsets=True) == []


def test_levels_behind_the_ends_of_their_queues_are_a_proof(tmp_path: Path) -> None:
    """They show that the log once held more: that they go is said."""
    store = small_store(tmp_path / "store")
    delay_ahead(store)
    (change,) = planned(store, findings_of(store, OFTEN), OFTEN, offsets=True)
    assert "1 delay offset moved" in change.what
    assert "the positions of these levels" in str(change.lost)
