"""Two stores whose messages are compared with Spark and without, and what both say."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.diff.message_pairs import Message, changed, messages_of, store_of


def compared_stores(folder: Path) -> tuple[list[str], dict[str, list[Message]]]:
    """A command line that compares two stores as JSON, and the messages of these.

    Random ones, some of them lost, repeated, or with another body, in random order. Of a broker.conf with several
    commit log paths the other store takes none, which has a log of its own.
    """
    chance = random.Random(7)
    first = messages_of(chance, 150)
    second = changed(first, chance)
    a, b = store_of(folder / "a", first, chance), store_of(folder / "b", second, chance)
    disks = [folder / "disk1", folder / "disk2"]
    for number, file in enumerate(sorted((a / "commitlog").iterdir())):
        disks[number % 2].mkdir(exist_ok=True)
        file.rename(disks[number % 2] / file.name)
    conf = folder / "broker.conf"
    conf.write_text(f"storePathRootDir={a}\nstorePathCommitLog={disks[0]},{disks[1]}\n")
    options = "--broker-conf", conf, "--exclude-topic", "pay*", "--limit", "10", "--by-message", "--json"
    return ["diff", *map(str, (a, b, *options))], {"a": first, "b": second}


def assert_same(on_spark: dict[str, Any], here: dict[str, Any], stores: dict[str, list[Message]]) -> None:
    """The results of both engines are those of the messages."""
    assert on_spark.pop("engine") == "spark"
    assert here.pop("engine") == "local"
    for result in (on_spark, here):
        for side, messages in stores.items():
            assert result[side]["messages"] == sum(each.topic != "payments" for each in messages)
            result[side].pop("left_out")
            only = result[f"only_{side}"]
            assert only["messages"] > len(only["listed"]) == 10
            assert only["other_body"] > 0
    assert on_spark["only_b"]["repeated"] > 0
    assert on_spark == here
