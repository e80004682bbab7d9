"""Tests of rmqtool.base."""
