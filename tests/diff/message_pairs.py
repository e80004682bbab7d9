"""Stores of different brokers: the same messages at other places, in another order, some of them missing or changed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.building import START_TIME
from tests.verify.small_store import StoreBuilder, small_store

FILE_SIZE = 8192


class Message(NamedTuple):
    """What makes a message the same in two stores; an empty key stands for none."""

    topic: str
    key: str
    body: bytes


def messages_of(chance: random.Random, count: int) -> list[Message]:
    """Messages with short, usual, long and no unique keys."""
    topics = "orders", "payments", "%RETRY%group"
    keys = "7F000001000018B4AAC2{:012X}", "k{}", "long" * 20 + "{}", ""
    return [Message(chance.choice(topics), chance.choice(keys).format(number), b"body %d" % number)
            for number in range(count)]  # fmt: skip


def store_of(root: Path, messages: Sequence[Message], chance: random.Random | None = None) -> Path:
    """A store that holds messages in this order, in any queue, with other times."""
    chance = chance or random.Random(1)
    builder = StoreBuilder(file_size=FILE_SIZE)
    for number, each in enumerate(messages):
        properties = {"TAGS": "t" * chance.randrange(5)} | ({"UNIQ_KEY": each.key} if each.key else {})
        builder.put(each.topic, chance.randrange(3), store_timestamp=START_TIME + number, body=each.body,
                    properties=properties)  # fmt: skip
    return small_store(root, builder)


def changed(messages: Sequence[Message], chance: random.Random) -> list[Message]:
    """The messages in another order, some lost, some twice, some with another body."""
    found: list[Message] = []
    for each in messages:
        match chance.randrange(12):
            case 0:
                continue
            case 1:
                found += [each] * chance.randrange(2, 4)
            case 2:
                found.append(each._replace(body=each.body + b"!"))
            case _:
                found.append(each)
    chance.shuffle(found)
    return found
