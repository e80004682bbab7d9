"""Bytes that a fuzzer has thought of, given to everything that reads files or answers."""
