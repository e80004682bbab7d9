"""The rules of retention, one by one."""
