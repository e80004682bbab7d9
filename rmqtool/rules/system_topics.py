"""Names of the topics and queues that brokers make for themselves (`TopicValidator`, `MixAll`)."""

from __future__ import annotations

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"  # TopicValidator.RMQ_SYS_SCHEDULE_TOPIC: queue id = level - 1
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"  # TopicValidator.RMQ_SYS_TRANS_HALF_TOPIC
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"  # TopicValidator.RMQ_SYS_TRANS_OP_HALF_TOPIC
TIMER_TOPIC = "rmq_sys_wheel_timer"  # TimerMessageStore.TIMER_TOPIC
RETRY_PREFIX = "%RETRY%"  # MixAll.RETRY_GROUP_TOPIC_PREFIX
DEAD_LETTER_PREFIX = "%DLQ%"  # MixAll.DLQ_GROUP_TOPIC_PREFIX
LMQ_PREFIX = "%LMQ%"  # MixAll.LMQ_PREFIX: a light queue
