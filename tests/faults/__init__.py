"""A system that fails while a store is read: a library between the program and the kernel."""
