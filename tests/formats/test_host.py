"""Hosts of messages: address and a port of four bytes."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.host import HOST_V4_SIZE, HOST_V6_SIZE, build_host, format_host, host_size
from rmqtool.formats.layout import FormatError
from rmqtool.formats.sys_flag import BORN_HOST_V6, STORE_HOST_V6

# The IPv4 hosts are those of a message that a broker encoded, the IPv6 host that of a message id it made.
GOLDEN = [
    ("0A010203 000015B3", "10.1.2.3", 5555, "10.1.2.3:5555"),
    ("C0A80001 00002A9F", "192.168.0.1", 10911, "192.168.0.1:10911"),
    ("20010DB8000000000000000000000001 00002A9F", "2001:db8::1", 10911, "[2001:db8::1]:10911"),
]


@pytest.mark.parametrize(("stored", "address", "port", "shown"), GOLDEN)
def test_golden_hosts(stored: str, address: str, port: int, shown: str) -> None:
    """A host is shown and built as the broker stores it."""
    assert format_host(bytes.fromhex(stored)) == shown
    assert build_host(address, port) == bytes.fromhex(stored)


@given(st.ip_addresses(), st.integers(0, 65535))
def test_show_inverts_build(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    """Any address and port come back from the stored bytes."""
    shown_address, _, shown_port = format_host(build_host(str(address), port)).rpartition(":")
    assert (ipaddress.ip_address(shown_address.strip("[]")), int(shown_port)) == (address, port)


@pytest.mark.parametrize(
    ("flag", "born", "store"),
    [(0x00, 8, 8), (0x10, 20, 8), (0x20, 8, 20), (0x30, 20, 20), (0x7CF, 8, 8), (-1, 20, 20)],
)
def test_host_size(flag: int, born: int, store: int) -> None:
    """Each host has a bit of its own for IPv6."""
    assert (host_size(flag, BORN_HOST_V6), host_size(flag, STORE_HOST_V6)) == (born, store)


@pytest.mark.parametrize("size", [size for size in range(HOST_V6_SIZE) if size != HOST_V4_SIZE])
def test_a_cut_host_is_a_format_error(size: int) -> None:
    """Anything between the two sizes is refused."""
    with pytest.raises(FormatError):
        format_host(bytes(size))


def test_a_port_of_more_than_two_bytes_is_shown() -> None:
    """Damage in the upper two bytes of a port stays visible."""
    assert format_host(bytes.fromhex("7F000001 00010000")) == "127.0.0.1:65536"


def test_an_ipv4_address_in_ipv6_form() -> None:
    """It is shown as such, by every Python the same."""
    stored = bytes.fromhex("00000000000000000000FFFF C0000201 00002A9F")
    assert format_host(stored) == "[::ffff:192.0.2.1]:10911"
