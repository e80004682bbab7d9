"""Tests of rmqtool.findings."""
