"""Headers of trusted proxies: which client sent a request, and to which address.

X-Forwarded-For, -Proto, -Host and -Prefix count only from the addresses of --trust-proxy, since any
client can send them.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tformer_cli.errors import UsageError
from tformer_cli.plugins.serve.hosts import host_name
from tformer_cli.wording import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from tformer_cli.plugins.serve.hosts import Names

THIS_MACHINE = ("127.0.0.0/8", "::1/128")
"""Trusted by default: a local program could use any of these addresses anyway."""
NOBODY = "none"
HOST, PREFIX = "tformer.host", "tformer.prefix"
"""Keys of a scope: the host that the client requested, and the path prefix it sees."""
ENTRANCE = "entrance"
"""Internal path of a request for the bare prefix; paths of clients begin with a slash."""
_PREFIX = re.compile(r"(?:/[\w.~%-]+)+", re.ASCII)


def trusted_networks(addresses: Sequence[str]) -> list[IPv4Network | IPv6Network]:
    """Parses the values of --trust-proxy."""
    networks = []
    for text in addresses or THIS_MACHINE:
        if text == NOBODY and len(addresses) == 1:
            return []
        try:
            networks.append(ip_network(text, strict=False))
        except ValueError:
            raise UsageError(
                f'--trust-proxy: "{visible(text, 100)}" is not an address; write 10.0.0.7, '
                f"10.0.0.0/8 or {NOBODY}"
            ) from None
    return networks


def public_url(scope: Scope, path: str) -> str:
    """Returns the URL of a path as seen by the client of a request, in ASCII."""
    host = scope.get(HOST) or header_value(scope, b"host")
    return f"{scope['scheme']}://{host}{scope.get(PREFIX, '')}{quote(path)}"


class ProxyHeaders:
    """Middleware that applies the headers of trusted proxies and strips the path prefix."""

    def __init__(
        self, app: ASGIApp, trusted: Sequence[str], names: Names, prefix: str = ""
    ) -> None:
        """Takes the allowed host names, and the prefix of --url-prefix."""
        self._app, self._names = app, names
        self._networks = trusted_networks(trusted)
        self._prefix = f"/{prefix.strip('/')}" if prefix else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, PREFIX: self._prefix}
            if scope.get("client") and self._is_trusted(scope["client"][0]):
                scope |= self._forwarded_values(scope)
            path = scope["path"]
            if self._prefix and path.startswith(f"{self._prefix}/"):
                scope["path"] = path[len(self._prefix) :]
            elif self._prefix and path == self._prefix and scope["method"] in ("GET", "HEAD"):
                scope["path"] = ENTRANCE
        await self._app(scope, receive, send)

    def _is_trusted(self, address: str) -> bool:
        try:
            ip = ip_address(address)
        except ValueError:  # a socket without an address
            return False
        ip = getattr(ip, "ipv4_mapped", None) or ip
        return any(ip in network for network in self._networks)

    def _forwarded_values(self, scope: Scope) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if client := self._client_address(header_value(scope, b"x-forwarded-for")):
            values["client"] = (client, 0)
        scheme = first_item(header_value(scope, b"x-forwarded-proto")).lower()
        if scheme in ("http", "https"):
            values["scheme"] = scheme
        host = first_item(header_value(scope, b"x-forwarded-host"))
        if host and host_name(host) in self._names:
            values[HOST] = host
        prefix = first_item(header_value(scope, b"x-forwarded-prefix")).rstrip("/")
        if _PREFIX.fullmatch(prefix) and not {"..", "."} & {*prefix.split("/")}:
            values[PREFIX] = prefix
        return values

    def _client_address(self, forwarded: str) -> str:
        """Returns the last address that is not a trusted proxy; earlier ones can be forged.

        Empty if there is none.
        """
        client = ""
        for text in reversed(forwarded.split(",")):
            address = strip_port(text.strip())
            try:
                client = str(ip_address(address))
            except ValueError:
                break
            if not self._is_trusted(client):
                break
        return client


def strip_port(address: str) -> str:
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def header_value(scope: Scope, name: bytes) -> str:
    """Returns the value of a header; repeated headers are joined into one list."""
    values = [value for key, value in scope["headers"] if key == name]
    return b",".join(values).decode("latin-1")


def first_item(text: str) -> str:
    return text.partition(",")[0].strip()
