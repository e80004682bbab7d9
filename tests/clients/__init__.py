"""Tests of `rmqtool.clients`."""
