"""Commit log bytes to columns: fast, in bounded memory, going on after damage."""
