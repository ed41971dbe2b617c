"""Host names: parsing the Host header, and the names that clients may use."""

import ipaddress
from dataclasses import dataclass


def host_name(header: str) -> str | None:
    """Returns the host name of a Host header, without the port; None if it is invalid."""
    # Not `urlsplit`, which also accepts a user name and a path
    name, port = header, ""
    if header.startswith("["):
        name, closing, port = header.partition("]")
        name += closing
    elif header.count(":") == 1:
        name, _, port = header.partition(":")
    is_port = not port or (port.lstrip(":").isascii() and port.lstrip(":").isdigit())
    return name.lower().removesuffix(".") if name and is_port else None


def is_loopback(host: str) -> bool:
    """True if only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Names:
    """Host names that clients may use for this machine."""

    known: frozenset[str]
    takes_addresses: bool
    """True to accept any IP address: DNS rebinding needs a name."""

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
