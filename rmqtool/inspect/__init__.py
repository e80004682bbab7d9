"""What a store, or a path in it, holds."""
