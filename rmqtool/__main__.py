"""The program: ``rmqtool``, or ``python -m rmqtool``."""

import os
import signal
from typing import NoReturn


def main() -> NoReturn:
    """The console script."""
    # While modules are loaded there is nothing to tidy up: Ctrl-C ends it at once, and without a traceback.
    heeds = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeds:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # NumPy brings a library for matrices, whose threads wait for work in a busy loop; we have no matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from rmqtool.base.late_modules import hide_pandas, load_late
    from rmqtool.base.limits import settle_memory

    settle_memory()
    hide_pandas()
    load_late()
    from rmqtool.cli import main as run

    if heeds:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
