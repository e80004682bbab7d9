"""A repair of several transactions, and its undo, cut at every system call: `python -m tests.repair.faults [SHARE]`.

Killed, failed in each way, or without power: verify reports nothing worse, the next repair finishes to the same bytes,
and undo brings back every byte and time. With SHARE only one of so many places is taken.
"""

from __future__ import annotations

import random
import sys

from tests.rebuild.faults import memory
from tests.repair.whole import Whole
from tests.transaction.faults import FAULTS, points


def main(share: int) -> int:
    """Run everything; print the counts."""
    chance = random.Random(1)
    with memory() as scratch:
        whole = Whole(scratch)
        for job, calls in whole.calls.items():
            print(f"{job}: {len(calls)} system calls", flush=True)
            stores = sum(whole.check(whole.crashed(contents)) for contents in whole.crashes(job, chance, share))
            print(f"  without power {'':11} {stores:4} stores: go on, and back", flush=True)
            for fault in FAULTS:
                places = points(calls, fault)[chance.randrange(share) :: share]
                stores = sum(whole.check(whole.run(job, fault, at)) for at in places)
                print(f"  {fault:13} {len(places):5} times, {stores:4} more stores: go on, and back", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
