"""A way out of what `verify` finds: one plan for all findings, and the changes that no rebuild makes."""
