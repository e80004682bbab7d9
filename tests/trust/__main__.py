"""Write docs/trust.md of the figures of the last runs: `python -m tests.trust`."""

from __future__ import annotations

import sys

from tests.trust.page import PAGE, page


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
