"""Exports in tests do not wait for the disk."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Nothing is flushed; the inodes that would have been, in order."""
    found: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: found.append(os.fstat(descriptor).st_ino))
    return found
