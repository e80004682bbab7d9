"""Tests of `rmqtool.query`."""
