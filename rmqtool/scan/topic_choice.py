"""Topics by name or by pattern, without those that are left out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

ANY = "*"
"""Stands for any characters in a pattern; no broker takes it in the name of a topic (`TopicValidator`)."""


def is_pattern(topic: str) -> bool:
    """Whether a word stands for many topics."""
    return ANY in topic


@dataclass(frozen=True)
class TopicChoice:
    """Topics that are `wanted`, all without one, less those that are `excluded`: names, or patterns with ``*``."""

    wanted: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether any topic is left out."""
        return bool(self.wanted or self.excluded)

    def __contains__(self, topic: str) -> bool:
        """Whether a topic is chosen."""
        return (not self.wanted or self._wanted(topic)) and not self._excluded(topic)

    def __getstate__(self) -> dict[str, Any]:
        """What another process gets: the words, no compiled patterns."""
        return {"wanted": self.wanted, "excluded": self.excluded}

    @property
    def names(self) -> tuple[str, ...] | None:
        """The topics that are chosen, where all of them are named, else None."""
        if not self.wanted or any(map(is_pattern, self.wanted)):
            return None
        return tuple(topic for topic in dict.fromkeys(self.wanted) if topic in self)

    def among(self, topics: Iterable[str]) -> tuple[str, ...]:
        """The chosen topics: those that are named, and those of `topics` that are meant by patterns."""
        if self.names is not None:
            return self.names
        named = (topic for topic in self.wanted if not is_pattern(topic))
        return tuple(topic for topic in dict.fromkeys((*named, *topics)) if topic in self)

    def mask(self, column: pa.Array) -> NDArray[np.bool_]:
        """Which topics of a column are chosen, bool; each different one is looked at once. Null is none of `wanted`."""
        encoded = column.dictionary_encode()
        chosen = np.array([topic in self for topic in encoded.dictionary.to_pylist()], dtype=np.bool_)
        codes = np.asarray(pc.fill_null(encoded.indices, -1))
        mask: NDArray[np.bool_] = np.append(chosen, not self.wanted)[codes]
        return mask

    @cached_property
    def _wanted_pattern(self) -> re.Pattern[str]:
        return _pattern(self.wanted)

    @cached_property
    def _excluded_pattern(self) -> re.Pattern[str]:
        return _pattern(self.excluded)

    def _wanted(self, topic: str) -> bool:
        return self._wanted_pattern.fullmatch(topic) is not None

    def _excluded(self, topic: str) -> bool:
        return bool(self.excluded) and self._excluded_pattern.fullmatch(topic) is not None


def _pattern(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(".*".join(map(re.escape, word.split(ANY))) for word in words), re.DOTALL)
