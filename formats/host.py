"""A host in a message: address, then a port of four bytes (`MessageExt#socketAddress2ByteBuffer`)."""

from __future__ import annotations

import ipaddress

from construct import Bytes, Int32sb, Struct

from .layout import build, parse, size_of

HostV4 = Struct(
    "address" / Bytes(4) * "IPv4 address",
    "port" / Int32sb * "port",
)
HostV6 = Struct(
    "address" / Bytes(16) * "IPv6 address",
    "port" / Int32sb * "port",
)
HOST_V4_SIZE = size_of(HostV4)
HOST_V6_SIZE = size_of(HostV6)


def host_size(sys_flag: int, v6_bit: int) -> int:
    """Stored size of a host, bytes: 8, or 20 when its IPv6 bit is set."""
    return HOST_V6_SIZE if sys_flag & v6_bit else HOST_V4_SIZE


def format_host(data: bytes) -> str:
    """Show a stored host as ``ip:port``; an IPv6 address is shortened and in brackets."""
    host = parse(HostV4 if len(data) == HOST_V4_SIZE else HostV6, data)
    address = ipaddress.ip_address(host.address)
    if isinstance(address, ipaddress.IPv4Address):
        return f"{address}:{host.port}"
    mapped = address.ipv4_mapped
    return f"[::ffff:{mapped}]:{host.port}" if mapped else f"[{address}]:{host.port}"  # as Python 3.13 shows it


def build_host(address: str, port: int) -> bytes:
    """Encode a host; the kind of address decides the size."""
    packed = ipaddress.ip_address(address).packed
    return build(HostV4 if len(packed) == 4 else HostV6, {"address": packed, "port": port})
