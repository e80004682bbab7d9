"""Listings as Python objects, without a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqtool.inspect.locate import Location, locate
from rmqtool.inspect.options import ListingOptions
from rmqtool.inspect.registry import list_location
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan.rows import Rows
from rmqtool.store.paths import Kind


def location_of(path: Path, kind: Kind | None = None) -> Location:
    found = locate(path, kind, BrokerConf())
    assert isinstance(found, Location)
    return found


def objects(path: Path, kind: Kind | None = None, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for part in list_location(location_of(path, kind), ListingOptions(**options)):
        found += part.dicts() if isinstance(part, Rows) else [part]
    return found
