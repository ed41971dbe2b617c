"""Names of machines: that of a Host header, and those that clients may call this one by."""

import ipaddress
from dataclasses import dataclass


def host_name(header: str) -> str | None:
    """Returns the name in a Host header, without the port; None: it is none."""
    # Not `urlsplit`, which takes a user name and a path, too
    name, port = header, ""
    if header.startswith("["):
        name, closing, port = header.partition("]")
        name += closing
    elif header.count(":") == 1:
        name, _, port = header.partition(":")
    is_port = not port or (port.lstrip(":").isascii() and port.lstrip(":").isdigit())
    return name.lower().removesuffix(".") if name and is_port else None


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Names:
    """Names that clients may call this machine by."""

    known: frozenset[str]
    takes_addresses: bool
    """True if any address will do: a rebound name is never one."""

    def __contains__(self, name: str | None) -> bool:
        if name is None:
            return False
        return name in self.known or (self.takes_addresses and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
