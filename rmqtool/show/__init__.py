"""Everything that anyone sees: text, JSON, JUnit, tables, progress."""
