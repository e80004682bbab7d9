"""Tests of listings."""
