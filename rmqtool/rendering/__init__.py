"""Rows of a listing as text: JSON lines, CSV, tables; whole columns at a time."""
