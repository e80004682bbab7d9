"""Runs a program where there is no network but loopback: ``python loopback.py PROGRAM ARGUMENT ...``.

Brokers listen on all interfaces of a machine; in a network namespace of its own there is only one. Clients of 4.x with
message trace want an address that is not 127.0.0.1: with ``--second-address`` before PROGRAM there is one, which leads
nowhere else either. With ``--join PID`` before PROGRAM it runs in the network of that process, to talk to its broker.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from typing import IO, NoReturn

UNAVAILABLE = 77
"""Exit status where the system allows no namespace."""

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # linux/sched.h
_SET_FLAGS, _UP = 0x8914, 1  # SIOCSIFFLAGS and IFF_UP of linux/sockios.h and linux/if.h
_SET_ADDRESS = 0x8916  # SIOCSIFADDR of linux/sockios.h
SECOND_ADDRESS = "--second-address"
_ADDRESS = "10.0.0.1"  # 4.x takes private ones only
JOIN = "--join"


def main(command: list[str]) -> NoReturn:
    """Become the program."""
    if command[0] == JOIN:
        _join(int(command[1]))
        os.execvp(command[2], command[2:])
    with_second = command[0] == SECOND_ADDRESS
    command = command[with_second:]
    flags = _NEW_NETWORK if os.geteuid() == 0 else _NEW_NETWORK | _NEW_USER
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(flags) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP))
            if with_second:
                address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(_ADDRESS))
                fcntl.ioctl(any_socket, _SET_ADDRESS, struct.pack("16s16s8x", b"lo:1", address))
    except (OSError, AttributeError) as error:
        print(f"no network namespace: {error}", file=sys.stderr)
        sys.exit(UNAVAILABLE)
    os.execvp(command[0], command)


def _join(process: int) -> None:
    kinds = ("net",) if os.geteuid() == 0 else ("user", "net")
    for kind in kinds:
        with open(f"/proc/{process}/ns/{kind}", "rb") as namespace:
            enter(namespace)


def enter(namespace: IO[bytes]) -> None:
    """Have this thread, and those that it starts, in a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace.fileno(), 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


if __name__ == "__main__":
    main(sys.argv[1:])
