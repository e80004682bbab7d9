"""Tests of the scan; the plain reader is the oracle."""
