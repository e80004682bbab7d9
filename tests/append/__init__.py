"""Tests of rmqtool.append."""
