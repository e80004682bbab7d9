"""Which contents of config files the real releases decode: the shapes of `rmqtool.rules.config_shapes` are theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqtool.rules.versions import parse_version
from rmqtool.store.config_json import load_config
from tests.formats.spellings import SPELLINGS
from tests.real_broker.harness import VERSIONS, Harness

pytestmark = pytest.mark.broker

TABLES = {
    "topics.json": "topicConfigTable",
    "consumerOffset.json": "offsetTable",
    "lmqConsumerOffset.json": "offsetTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerFilter.json": "filterDataByTopic",
    "delayOffset.json": "offsetTable",
    "topicQueueMapping.json": "topicQueueMappingInfoMap",
    "consumerOrderInfo.json": "table",
    "timermetrics": "timingCount",
}
VALUES = (
    *("5", '"x"', "[1]", "[]", "null", "{}", "true", '{"x":5}', '{"x":"y"}', '{"x":[1]}', '{"x":null}', '{"x":{}}'),
    *('{"x":{"0":"7"}}', '{"x":{"0":"y"}}', '{"x":{"y":1}}', '{"1":"3"}', '{"1":"y"}', '{"1":1.5}', '{"1":null}'),
    *('{"1":9223372036854775808}', '{"a@g":{"0":1.5}}', '{"a@g":{"0":99999999999999999999}}', '{"a@g":{"0":null}}'),
)
WHOLE = ("{}", "null", '"x"', "x", '{"x', '{"table":{}}', '{"table":{}', '{"table":{}} x', "[1]", "true", "5", "\0" * 8)
BESIDE = {
    "topics.json": ('"dataVersion":5', '"dataVersion":null', '"dataVersion":{"counter":"x"}'),
    "consumerOffset.json": (
        *('"dataVersion":5', '"dataVersion":null', '"pullOffsetTable":5', '"pullOffsetTable":{"a@g":{0:1}}'),
        *('"groupTopicMap":5', '"groupTopicMap":{"g":"a"}', '"groupTopicMap":null', '"lmqOffsetTable":5'),
    ),
    "lmqConsumerOffset.json": ('"lmqOffsetTable":5', '"lmqOffsetTable":{"x@g":"y"}', '"lmqOffsetTable":{"x@g":3}'),
    "subscriptionGroup.json": ('"forbiddenTable":5', '"forbiddenTable":null', '"dataVersion":5', '"dataVersion":null'),
    "delayOffset.json": ('"dataVersion":5', '"dataVersion":null'),
    "timermetrics": ('"dataVersion":5', '"dataVersion":null'),
}
TOPIC = (
    *('"perm":"six"', '"perm":null', '"readQueueNums":"4"', '"readQueueNums":4.7', '"readQueueNums":99999999999'),
    *('"attributes":5', '"attributes":{"a":5}', '"topicFilterType":"NO"', '"order":"maybe"', '"order":5'),
)
GROUP = ('"consumeEnable":"maybe"', '"brokerId":"z"', '"groupName":5', '"attributes":[1]', '"retryMaxTimes":[]')


def texts() -> Iterator[tuple[str, str]]:
    """Contents by file name."""
    for name, table in TABLES.items():
        yield from ((name, text) for text in WHOLE)
        yield from ((name, f'{{"{table}":{value}}}') for value in VALUES)
        yield from ((name, f'{{"{table}":{{}},{member}}}') for member in BESIDE.get(name, ()))
    yield from ((name, text) for name, text, _ in SPELLINGS)
    yield from (("topics.json", f'{{"topicConfigTable":{{"x":{{"topicName":"x",{field}}}}}}}') for field in TOPIC)
    yield from (("subscriptionGroup.json", f'{{"subscriptionGroupTable":{{"x":{{{field}}}}}}}') for field in GROUP)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_releases_decode_the_same(harness: Callable[[str], Harness], version: str, tmp_path: Path) -> None:
    """Each of 350 contents is decoded, or refused, as by the manager of the release that loads the file."""
    asked = list(dict.fromkeys(texts()))
    path = tmp_path / "config"
    path.mkdir()
    differing = []
    for (name, text), answer in zip(asked, harness(version).decode(asked), strict=True):
        (path / name).write_text(text, encoding="utf-8")
        found = load_config(path / name, parse_version(version))
        if answer != "absent" and (found.path is None) != answer.startswith("refused"):
            differing.append((name, text, answer, found.problem))
    assert differing == []
    assert len(asked) > 300
