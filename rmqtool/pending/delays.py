"""Messages of the delay levels that are not delivered yet (`ScheduleMessageService`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rmqtool.findings.finding import counted
from rmqtool.formats.properties import REAL_QUEUE_ID, REAL_TOPIC
from rmqtool.pending.messages import View, messages_of, note_beyond, part_from
from rmqtool.pending.waiting import RETRY_TOPIC, integers, receivers, waiting
from rmqtool.rules.broker_conf import DelayLevels, known_levels
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.store.config_json import ConfigFile
from rmqtool.store.config_tables import DELAYS, load_delay_offsets

_PROPERTIES = (REAL_TOPIC, REAL_QUEUE_ID, RETRY_TOPIC)


def delayed(view: View, *, are_lost: bool = False) -> Iterator[pa.RecordBatch]:
    """The messages from each level's offset on; their units have the time of delivery in place of the tags code.

    Those of levels that the broker does not have `are_lost`: they come alone, or the others do.
    """
    offsets, without_time = load_delay_offsets(view.snapshot.store), 0
    queues = [queue for queue in view.queues(SCHEDULE_TOPIC) if queue.queue.topic == SCHEDULE_TOPIC]
    if queues:
        _note_file(view, offsets.file)
    ends = {queue.queue.queue_id + 1: queue.range.max_offset for queue in queues}
    for level, offset in offsets.by_level.items():
        note_beyond(view, SCHEDULE_TOPIC, level - 1, ends.get(level, 0), offset)
    highest = known.highest if (known := known_levels(view.snapshot.store.conf)) else None
    for queue in queues:
        level = queue.queue.queue_id + 1
        if are_lost is not (highest is not None and level > highest):
            continue
        for messages in messages_of(view, part_from(queue, offsets.by_level.get(level, 0), _PROPERTIES)):
            due, unknown = _dues(messages, level, view.snapshot.delay_levels)
            without_time += unknown
            yield waiting(
                "lost-delay" if are_lost else "delay",
                messages,
                level=level,
                due_timestamp=due,
                **receivers(messages, messages.column(REAL_TOPIC), view.groups),
                to_queue_id=integers(messages.column(REAL_QUEUE_ID), queue_ids=True),
                topic=SCHEDULE_TOPIC,
                queue_id=queue.queue.queue_id,
            )
    if without_time:
        view.notes.add_uncertain(
            f"when {counted(without_time, 'delayed message')} would be delivered",
            "their units have no time of delivery, as a recovery of 4.9.2 to 4.9.8 leaves them: a start delivers them "
            "at once; the times shown are those by their levels",
        )


def _dues(messages: pa.Table, level: int, levels: DelayLevels) -> tuple[pa.Array, int]:
    """When each message is due, epoch ms, and of how many the unit does not say so."""
    due = np.asarray(messages.column("tags_code"))
    stored = np.asarray(messages.column("store_timestamp"))
    has_time = due >= stored
    by_level = stored + levels.delays[min(level, levels.highest) - 1]
    return pa.array(np.where(has_time, due, by_level)), int(np.count_nonzero(~has_time))


def _note_file(view: View, file: ConfigFile) -> None:
    if file.path is None:
        why = f"{file.problem or 'it is missing'}: a start delivers all messages of the levels, again or not"
        view.notes.add_uncertain(f"what was delivered of the delay levels: config/{DELAYS}", why)
    elif file.problem:
        why = f"{file.problem}: its .bak counts, and what was delivered since is delivered again"
        view.notes.add_uncertain(f"what was delivered last of the delay levels: config/{DELAYS}", why)
