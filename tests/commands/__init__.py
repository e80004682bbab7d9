"""Tests of the command line, most of them in this process."""
