"""What processes that share the work of one command have in common."""

from __future__ import annotations


def keep_arrow_to_one_thread() -> None:
    """There is a process for each core: more threads of Arrow would only wait for each other."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
