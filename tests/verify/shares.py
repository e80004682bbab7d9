"""Exhaustive trials, shared among processes."""

from __future__ import annotations

import argparse
import multiprocessing
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def counts_of_all(try_share: Callable[[int, int], Counter[T]], description: str | None, of_what: str) -> Counter[T]:
    """Parse the command line, and count what `try_share` does from the first argument on with the second as step."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help=f"try one of so many {of_what}")
    options = parser.parse_args()
    shares = [(number * options.every, options.jobs * options.every) for number in range(options.jobs)]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        return sum(pool.starmap(try_share, shares), Counter())
