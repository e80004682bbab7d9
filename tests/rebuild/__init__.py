"""Tests of rmqtool.rebuild."""
