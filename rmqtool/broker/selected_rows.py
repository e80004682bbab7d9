"""Which queues a broker that writes queues twice writes to RocksDB, where it selects them.

Since 5.5.1 `rocksdbCQSelectiveDoubleWriteEnable` leaves out the records of all topics but those of LITE messages, and
with the records of other topics their light queues (`CombineConsumeQueueStore#shouldDoubleWriteForTopic`).
"""

from __future__ import annotations

from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.rules.versions import SELECTED_TWICE, Version
from rmqtool.store.topics import Topics

SETTING = "rocksdbCQSelectiveDoubleWriteEnable"

_LITE_PREFIX = f"{LMQ_PREFIX}$"  # %LMQ%$parent$child: LiteUtil


def selects_rows(conf: BrokerConf, version: Version) -> bool:
    """Whether a broker of a release writes only some topics to RocksDB."""
    return version >= SELECTED_TWICE and conf.is_on(SETTING)


def has_rows(topics: Topics, topic: str) -> bool:
    """Whether records of a topic get rows where they are selected, and so those of a light queue."""
    config = topics.by_name.get(_parent(topic))
    return config is not None and config.attributes.get("message.type") == "LITE"


def _parent(topic: str) -> str:
    """The topic whose records are dispatched to a light queue of LITE messages; any other topic itself."""
    if not topic.startswith(_LITE_PREFIX):
        return topic
    return topic.removeprefix(_LITE_PREFIX).partition("$")[0]
