"""Tests of `rmqtool.formats`, one module for each of its modules."""
