"""The commands: each opens, calls one job and shows what it returns."""
