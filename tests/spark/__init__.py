"""Tests that run a local Spark; each session lives in a process of its own."""
