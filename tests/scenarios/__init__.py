"""Themes that go through the whole program."""
