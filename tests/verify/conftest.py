"""Fixtures of the tests of `verify`."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import patch

import pytest


@pytest.fixture(autouse=True)
def half_empty_disk() -> Iterator[None]:
    """However full the disk of the tests is: on a nearly full one a cleaner deletes what has not expired."""
    with patch("rmqtool.verify.queue_leftovers.shutil.disk_usage", return_value=SimpleNamespace(total=100, used=50)):
        yield
