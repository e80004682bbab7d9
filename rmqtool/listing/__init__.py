"""Everything at a place in a store as rows of the machine interface: units, messages, numbers, settings."""
