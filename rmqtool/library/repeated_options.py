"""The options of a command line that lead to a store as it was opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqtool.rules.versions import Version


def repeated_options(
    conf: str | None, version: Version | None, bytes_per_second: int | None = None, jobs: int = 1
) -> tuple[str, ...]:
    """The options that the next commands on the store need, too, as words."""
    given = {"--broker-conf": conf, "--broker-version": version, "--limit-rate": bytes_per_second,
             "--jobs": jobs if jobs > 1 else None}  # fmt: skip
    return tuple(word for name, value in given.items() if value is not None for word in (name, str(value)))
