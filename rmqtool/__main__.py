"""The program: ``rmqtool``, or ``python -m rmqtool``."""

import gc
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
    # 50,000 objects of modules are no garbage, and to look for it in them takes a fourteenth of a small command.
    gc.set_threshold(100_000)
    from rmqtool.base.late_modules import hide_pandas, load_late
    from rmqtool.base.limits import save_memory

    save_memory()
    hide_pandas()
    load_late()
    from rmqtool.cli import main as run

    if heeds:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
