"""Sizes of files as broker.conf sets them."""

from __future__ import annotations

import pytest

from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.file_sizes import queue_file_size
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import NEWEST


@pytest.mark.parametrize(
    "name", ["mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue", "mapperFileSizeBatchConsumeQueue"]
)
def test_only_simple_queues_have_whole_units(name: str) -> None:
    """The size of simple queue files is rounded up to 20 bytes; that of batch queue files counts as it is."""
    conf = BrokerConf({name: "1001"})
    is_batch = name.startswith("mapper")
    expected = (None, 1001) if is_batch else (1020, None)
    assert (queue_file_size(conf, "simple"), queue_file_size(conf, "batch")) == expected
    rules = RecoveryRules.of(NEWEST, conf)
    assert (rules.queue_file_size, rules.batch_queue_file_size) == expected
