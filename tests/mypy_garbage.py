"""A plugin of mypy that adds no types: at its own pace Python's garbage collector takes half of the time of mypy."""

from __future__ import annotations

import gc
from typing import Any

from mypy.plugin import Plugin


def plugin(version: str) -> Any:
    """Collect a tenth as often; mypy has set its own thresholds before it loads plugins."""
    gc.set_threshold(4_000_000, 100)
    return Plugin
