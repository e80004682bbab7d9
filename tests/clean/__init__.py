"""What is told about a run of the cleaner, and doing it."""
