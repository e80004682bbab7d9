"""Tests of rmqtool.broker."""
