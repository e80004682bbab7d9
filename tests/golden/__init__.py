"""Stores written by real brokers, each beside what the same release says about it."""
