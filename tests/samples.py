"""Comparing the output that a document shows with what the program prints."""

from __future__ import annotations


def missing_line(shown: list[str], printed: list[str]) -> str | None:
    """The first line of `shown` that is not in the rest of `printed` after the one before."""
    rest = iter(line.rstrip() for line in printed)
    return next((line for line in shown if line.rstrip() not in rest), None)
