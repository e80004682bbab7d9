"""Changes of the modules that decide, one at a time: whether some test sees each of them."""
