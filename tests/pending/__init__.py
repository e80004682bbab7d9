"""Tests of what a stopped broker has yet to deliver."""
