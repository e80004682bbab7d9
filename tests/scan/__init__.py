"""Tests of the scan; the reference reader is the oracle."""
