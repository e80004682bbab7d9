"""Which messages fit into the timer's buffer: it is as large as `maxMessageSize` says, or messages show."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.broker.timer_deliveries import timer_buffer
from rmqtool.broker.timer_start import TimerQueue
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version

MIB = 1 << 20
MORE = {"maxMessageSize": str(8 * MIB)}
GIVEN = BrokerConf(path="broker.conf")


@pytest.mark.parametrize(
    ("conf", "version", "largest", "expected"),
    [
        pytest.param(BrokerConf(), "5.3.3", 500, 4 * MIB + 100, id="nothing is known"),
        pytest.param(BrokerConf(), "5.5.1", 500, 4 * MIB + (64 << 10), id="5.5.1"),
        pytest.param(BrokerConf(), "5.3.3", 4 * MIB + 101, 4 * MIB + 100, id="a body of the default size"),
        pytest.param(BrokerConf(), "5.3.3", 5 * MIB, 5 * MIB, id="maxMessageSize was more than the default"),
        pytest.param(GIVEN, "5.3.3", 5 * MIB, 4 * MIB + 100, id="broker.conf leaves it at the default"),
        pytest.param(BrokerConf(MORE), "5.3.3", 9 * MIB, 8 * MIB + 100, id="given"),
    ],
)
def test_buffer(conf: BrokerConf, version: str, largest: int, expected: int) -> None:
    """Without broker.conf a record that the default does not let in shows that it is not the default."""
    sizes = np.array([200, largest, 300])
    queue = TimerQueue(np.arange(3), 1000 * np.arange(3), sizes)
    assert timer_buffer(queue, conf, parse_version(version)) == expected
