"""Tests of rendering."""
