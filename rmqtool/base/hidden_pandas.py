"""pandas beside the program: pyarrow loads it with the first array, 30 MiB and a quarter of a second for nothing.

No command has a use for data frames. Where pyarrow does not find pandas, it looks again only when it is asked for one.
"""

from __future__ import annotations

import sys

_PANDAS = "pandas"


class _Hidden:
    """A finder of modules that says of pandas that it is not there, and leaves all others to the next finder."""

    @staticmethod
    def find_spec(fullname: str, *_: object) -> None:
        """Raise ModuleNotFoundError for pandas."""
        if fullname == _PANDAS:
            raise ModuleNotFoundError("no command needs pandas", name=fullname)


def hide_pandas() -> None:
    """Hide it from pyarrow, in a process of the program; never in one that imports rmqtool as a library."""
    if _PANDAS not in sys.modules and _Hidden not in sys.meta_path:
        sys.meta_path.insert(0, _Hidden)


def show_pandas() -> None:
    """Let it be found again, for somebody else's code."""
    if _Hidden in sys.meta_path:
        sys.meta_path.remove(_Hidden)
