"""What only root can test: that others may do less."""

from __future__ import annotations

import os

import pytest

NOBODY = 65534
"""A user who owns nothing."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
