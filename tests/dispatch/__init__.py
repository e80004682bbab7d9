"""Tests of what the broker derives from records."""
