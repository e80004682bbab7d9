"""Filters of consumer groups that a broker forgets at its start."""

from __future__ import annotations

from rmqtool.rules.versions import Version
from rmqtool.store.consumer_filters import load_filters
from rmqtool.store.store import Store


def filters_lost(store: Store, version: Version) -> int:
    """How many filters of groups a start of `version` ignores, by its broker.conf."""
    return load_filters(store, version).lost
