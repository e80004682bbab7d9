"""Tests, mirroring the layout of the project."""
