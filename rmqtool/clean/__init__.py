"""What the broker's cleaner would delete, when and why, what is lost with it, and the deletion itself."""
