"""What a stopped broker still owes: messages that it has accepted, and that nobody has got yet."""
