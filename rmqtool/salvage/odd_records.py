"""Records that prove their body, and do not look as a broker writes them: another copy may have them whole."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.rules.system_topics import is_system_topic
from rmqtool.scan.frames import RecordRun

_LEGAL = r"^[%|a-zA-Z0-9_\-]+$"  # what `TopicValidator` takes


def odd_rows(frames: RecordRun, topics: frozenset[str], doubtful: frozenset[int] = frozenset()) -> NDArray[np.bool_]:
    """Which records of a run have a topic that is no name or none of `topics`, or properties that are not text.

    A record with a CRC of its own is never odd. Without `topics` every name will do. Those at `doubtful` physical
    offsets are odd, too: queue or index of their own store show another topic, queue, flag or key.
    """
    odd = ~_are_named(_texts(frames.block.slices(frames.topic_positions, frames.topic_sizes)), topics)
    properties = _texts(frames.block.slices(frames.properties_positions, frames.properties_sizes))
    odd |= _mask(pc.or_kleene(pc.is_null(properties), pc.match_substring(properties, "\0")))
    odd[frames.property_crcs.rows] = False
    if doubtful:
        odd |= np.isin(frames.physical_offsets, np.fromiter(doubtful, np.int64, len(doubtful)))
    return odd


def _are_named(topics: pa.StringArray, known: frozenset[str]) -> NDArray[np.bool_]:
    encoded = topics.dictionary_encode()
    names = encoded.dictionary
    legal = _mask(pc.match_substring_regex(names, _LEGAL))
    if known:
        legal &= np.array([name in known or is_system_topic(name) for name in names.to_pylist()], dtype=np.bool_)
    named: NDArray[np.bool_] = np.append(legal, False)[np.asarray(pc.fill_null(encoded.indices, -1))]
    return named


def _texts(values: pa.BinaryArray) -> pa.StringArray:
    """The values as text, null where one is not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in values.to_pylist()], pa.string())


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _mask(values: pa.BooleanArray) -> NDArray[np.bool_]:
    return np.array(pc.fill_null(values, True), dtype=np.bool_)
