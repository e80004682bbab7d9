"""Names of the topics, queues and groups that brokers make for themselves (`TopicValidator`, `MixAll`)."""

from __future__ import annotations

import re

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"  # TopicValidator.RMQ_SYS_SCHEDULE_TOPIC: queue id = level - 1
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"  # TopicValidator.RMQ_SYS_TRANS_HALF_TOPIC
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"  # TopicValidator.RMQ_SYS_TRANS_OP_HALF_TOPIC
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"  # TopicValidator.RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC
ROCKSDB_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"  # TopicValidator.RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC
TIMER_TOPIC = "rmq_sys_wheel_timer"  # TimerMessageStore.TIMER_TOPIC
DELAYED_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)  # in which messages wait until they are due
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"  # PopAckConstants.REVIVE_TOPIC, followed by the name of the cluster
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"  # TopicValidator.RMQ_SYS_TRACE_TOPIC, as msgTraceTopicName is by default
TRACE_PREFIX = "rmq_sys_TRACE_DATA_"  # TraceConstants.TRACE_TOPIC_PREFIX, followed by a region
RETRY_PREFIX = "%RETRY%"  # MixAll.RETRY_GROUP_TOPIC_PREFIX
DEAD_LETTER_PREFIX = "%DLQ%"  # MixAll.DLQ_GROUP_TOPIC_PREFIX
LMQ_PREFIX = "%LMQ%"  # MixAll.LMQ_PREFIX: a light queue
LITE_PREFIX = f"{LMQ_PREFIX}$"  # %LMQ%$parent$child: LiteUtil

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"  # MixAll.CID_SYS_RMQ_TRANS: reads half and op messages
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"  # PopAckConstants.REVIVE_GROUP
BUILT_IN_GROUPS = re.compile(r"TOOLS_CONSUMER|FILTERSRV_CONSUMER|SELF_TEST_C_GROUP|CID_(ONS|RMQ_SYS|SYS_RMQ)\S*")
"""Groups that each broker makes for itself (`SubscriptionGroupManager#init`)."""

_BROKERS_OWN = (
    *(SCHEDULE_TOPIC, "RMQ_SYS_", "rmq_sys_", "TBW102", "OFFSET_MOVED_EVENT"),
    *("TRANS_CHECK_MAX_TIME_TOPIC", "CHECKPOINT_TOPIC", "SELF_TEST_TOPIC", "BenchmarkTest", "%RMQTOOL%"),
)

FILLED_BY_BROKERS = "^(" + "|".join(map(re.escape, (*_BROKERS_OWN, LMQ_PREFIX))) + ")|_REPLY_TOPIC$"
"""A pattern of topics that brokers fill by themselves, those of groups aside; Java reads it as Python does."""


def is_filled_by_brokers(topic: str) -> bool:
    """Whether a topic is one that consumers do not read by themselves: a system topic, but for those of retries."""
    return is_system_topic(topic) and not topic.startswith(RETRY_PREFIX)


def is_read_by_tag(topic: str) -> bool:
    """Whether consumers may choose by tag what they get of a topic: not of those of brokers, nor of retries."""
    return not topic.startswith((*_BROKERS_OWN, RETRY_PREFIX)) and not topic.endswith("_REPLY_TOPIC")


def is_system_topic(topic: str) -> bool:
    """Whether a broker makes this topic by itself, so that topics.json need not name it."""
    of_groups = RETRY_PREFIX, DEAD_LETTER_PREFIX, LMQ_PREFIX
    return topic.startswith((*_BROKERS_OWN, *of_groups)) or topic.endswith("_REPLY_TOPIC")
