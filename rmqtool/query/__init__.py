"""`query`: find messages, and explain where one stands."""
