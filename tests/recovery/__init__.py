"""Tests of rmqtool.recovery."""
