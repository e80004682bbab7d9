"""``python -m rmqtool``."""

from rmqtool.cli import main

main()
