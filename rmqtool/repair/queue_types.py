"""The attribute ``queue.type`` of topics, set to what their queues are (`ConsumeQueueStore#queueTypeShouldBe`)."""

from __future__ import annotations

from collections.abc import Mapping

from rmqtool.repair.config_text import Member, edited, member_of, members, table_in

_NAMES = ("queue.type", "+queue.type")  # a change that was stored as one keeps its sign
_TYPES = {True: "BatchCQ", False: "SimpleCQ"}


def with_queue_types(text: str, is_batch: Mapping[str, bool]) -> tuple[str, list[str]]:
    """The text of topics.json with the type of these topics' queues, and a line for each that changes."""
    lines = []
    for topic, batch in sorted(is_batch.items()):
        table = table_in(text, "topicConfigTable")
        entry = member_of(text, table.value, topic) if table else None
        changed = text if entry is None else _with_type(text, entry, f'"{_TYPES[batch]}"')
        if changed != text:
            text = changed
            lines.append(f"topic {topic}: queue.type {_TYPES[batch]}, as its queues are")
    return text, lines


def _with_type(text: str, entry: Member, value: str) -> str:
    attributes = member_of(text, entry.value, "attributes")
    if attributes is None or text[attributes.value] != "{":
        return _with_first(text, entry.value, f'"attributes":{{"queue.type":{value}}}')
    types = [each for each in members(text, attributes.value) if each.name in _NAMES]
    if not types:
        return _with_first(text, attributes.value, f'"queue.type":{value}')
    return edited(text, [(each.value, each.stop, value) for each in types])


def _with_first(text: str, opening: int, member: str) -> str:
    """The text with a member at the beginning of an object."""
    more = "," if next(members(text, opening), None) else ""
    return edited(text, [(opening + 1, opening + 1, f"{member}{more}")])
