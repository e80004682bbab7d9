"""What changed in which release and what broker.conf sets; without any input or output."""
