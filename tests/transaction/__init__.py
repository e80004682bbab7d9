"""Tests of the only writer inside a store."""
