"""What a stopped broker has yet to deliver: messages that it has accepted, and that nobody has got yet."""
