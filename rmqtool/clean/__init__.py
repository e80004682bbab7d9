"""What the broker's cleaner would delete, when and why, and what is lost with it; and doing it."""
