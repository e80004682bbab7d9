"""Speed measurements: `python -m tests.benchmarks`."""
