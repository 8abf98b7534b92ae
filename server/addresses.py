"""What a host to listen on stands for. Knows no sockets and no ports.

`::` is every address of the machine, of both kinds, as users of dual-stack binds expect. IPv6 and IPv4 are two
addresses here, so that IPv4 clients have the addresses that they have elsewhere (not `::ffff:192.0.2.1`), in logs and
for `trusted_proxies`.
"""

import socket
from ipaddress import ip_address
from typing import Any

from server.config import ConfigError

Address = tuple[Any, ...]
"""As `socket.getaddrinfo` gives them."""

_EVERY: list[tuple[int, Address]] = [(socket.AF_INET6, ("::", 0, 0, 0)), (socket.AF_INET, ("0.0.0.0", 0))]


def addresses(host: str) -> list[tuple[int, Address]]:
    """The families and addresses that the host stands for, each once, with port 0; an empty one is `::`.

    Raises:
        ConfigError: it is neither an address nor a name that is known.
    """
    host = bare(host)
    if not host or _is_every_ipv6(host):
        return _EVERY
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, ValueError) as error:  # ValueError: no name at all, such as one of 300 letters
        raise ConfigError(f"host = {host!r} is no address ({error}): choose one of this machine, or 0.0.0.0") from error
    return list(dict.fromkeys((int(family), address) for family, _, _, _, address in found))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host."""
    try:
        return ip_address(bare(host)).is_loopback
    except ValueError:
        return host == "localhost"


def bare(host: str) -> str:
    """The host without the brackets that an IPv6 address has in URLs."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _is_every_ipv6(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.version == 6 and address.is_unspecified
