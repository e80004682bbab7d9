"""Repairs: the plan, and what it changes."""
