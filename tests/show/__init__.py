"""Tests of rmqtool.show."""
