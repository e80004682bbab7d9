"""Tests of what a stopped broker still owes."""
