"""Tests of rmqtool.inspect."""
