"""Tests of rmqtool.store."""
