"""The program: ``rmqtool``, or ``python -m rmqtool``."""

import signal
from typing import NoReturn


def main() -> NoReturn:
    """The console script."""
    # While modules are loaded there is nothing to tidy up: Ctrl-C ends it at once, and without a traceback.
    heeds = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeds:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rmqtool.cli import main as run

    if heeds:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
