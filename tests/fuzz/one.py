"""One target under atheris: `python -m tests.fuzz.one NAME [options of libFuzzer] [folders of inputs]`."""

from __future__ import annotations

import sys

import atheris


def main() -> None:
    """Run until libFuzzer ends it."""
    with atheris.instrument_imports(include=["rmqtool"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[sys.argv[1]]
    target.run(b"")  # what is loaded late counts for no input
    atheris.Setup([sys.argv[0], f"-max_len={target.longest}", *sys.argv[2:]], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
