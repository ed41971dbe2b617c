"""Checks on every request: host, origin, API key and size.

The host name comes first. Any web page can make its own name point to this machine (DNS rebinding),
and the browser then takes us for the server of that page; only the Host header reveals it.
"""

import asyncio
import hmac
import ipaddress
import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from socket import gethostname
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tformer_cli.errors import DataError
from tformer_cli.plugins.serve.config import BODY_BYTES, BODY_SECONDS, FILE_BYTES, ServeSettings
from tformer_cli.plugins.serve.dialects import dialect_of
from tformer_cli.plugins.serve.hosts import Names, host_name
from tformer_cli.plugins.serve.origins import Origins
from tformer_cli.plugins.serve.proxies import ENTRANCE, HOST, ProxyHeaders
from tformer_cli.plugins.serve.request_log import LogRequests, RequestLog
from tformer_cli.plugins.serve.requests import Refused
from tformer_cli.plugins.serve.unpacking import Unpacker, unpacker_for

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
WILDCARDS = ("0.0.0.0", "::", "")  # noqa: S104 - only for comparison
FILE_PATHS = ("/translate_file",)
BODY_IS_READ = "tformer.body_is_read"
"""Key of a scope: an event after which `receive` returns only when the client leaves."""
NETWORK_BITS = 64
"""Bits of an IPv6 address that identify a client, which usually has a whole /64 network."""
IS_CROWDED = "tformer.is_crowded"
"""Key in the state of connections beyond the limit."""
HEALTH_PATHS, PROBED_PATHS = ("/health",), ("/health", "/ready")
"""Answered on any connection, and to load balancers without a Host header or with an empty one."""
SHORTEST_KEY = 16
LARGEST_KEY_FILE = 1 << 20
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    ("content-security-policy", CONTENT_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("x-frame-options", "DENY"),
    ("cache-control", "no-store"),
)
"""Headers of every response that does not set them itself."""
ENCODED_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS]
EXPOSED = "content-disposition, retry-after, x-request-id"
"""Response headers that pages of other origins may read."""
PREFLIGHT = (
    ("access-control-allow-methods", "GET, HEAD, POST"),
    ("access-control-max-age", "600"),
    ("vary", "origin, access-control-request-headers, access-control-request-private-network"),
)
_HEADER_NAMES = re.compile(r"[\w!#$%&'*+.^`|~-]+(?:\s*,\s*[\w!#$%&'*+.^`|~-]+)*", re.ASCII)
PRIVATE = "private-network"
"""Suffix of the headers with which a public page asks for access to a private network."""


def address_of(scope: Scope) -> str:
    """Returns the address that identifies a client; for IPv6, its network."""
    address = str((scope.get("client") or ("",))[0])
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((int(ip), NETWORK_BITS), strict=False))
    return address


def allowed_names(settings: ServeSettings) -> Names:
    """Returns the host names under which clients may reach the service."""
    is_wildcard = settings.host in WILDCARDS
    bound = gethostname() if is_wildcard else settings.host
    bound = f"[{bound}]" if ":" in bound else bound
    names = (*LOOPBACK, bound, *settings.allow_host)
    return Names(frozenset(name.lower() for name in names), takes_addresses=is_wildcard)


class Keys:
    """API keys of clients; without any, no key is required."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = [sha256(key.encode()).digest() for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def accepts(self, key: str) -> bool:
        """Checks a key in constant time, so that timing reveals nothing about the valid ones."""
        digest = sha256(key.encode("utf-8", "surrogatepass")).digest()
        is_known = False
        for known_digest in self._digests:
            # No early exit: its timing would reveal a match
            is_known |= hmac.compare_digest(known_digest, digest)
        return is_known


def read_keys(file: Path | None) -> Keys:
    """Reads keys, one per line; skips blank lines and lines that begin with #."""
    if file is None:
        return Keys()
    try:
        with file.open(encoding="utf-8") as stream:
            lines = [line.strip() for line in stream.read(LARGEST_KEY_FILE).splitlines()]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise DataError(
            f"--api-key-file: {file} cannot be read ({reason.lower()}); name another file"
        ) from None
    keys = [line for line in lines if line and not line.startswith("#")]
    for number, key in enumerate(keys, 1):
        if len(key) < SHORTEST_KEY:  # short keys can be guessed
            raise DataError(
                f"--api-key-file: key {number} of {file} has {len(key)} characters; make one of "
                f"{SHORTEST_KEY} or more, such as by `openssl rand -hex 16`"
            )
    if not keys:
        raise DataError(
            f"--api-key-file: {file} has no key; write one per line, or omit the option"
        )
    return Keys(keys)


class Guard:
    """Middleware that refuses bad requests, limits bodies, and adds headers."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServeSettings,
        is_draining: Callable[[], bool] = lambda: False,
        *,
        body_seconds: float = BODY_SECONDS,
        log: RequestLog | None = None,
    ) -> None:
        self._app = app
        self._names = allowed_names(settings)
        has_keys = settings.api_key_file is not None
        self._origins = Origins(settings.allow_origin, asks_for_keys=has_keys)
        self._is_draining = is_draining
        self._body_seconds = body_seconds
        logged = LogRequests(self._check_and_answer, log, has_text=settings.log_text)
        self._outer = ProxyHeaders(logged, settings.trust_proxy, self._names, settings.url_prefix)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._outer(scope, receive, send)

    async def _check_and_answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        is_allowed = origin in self._origins
        ends = _is_crowded(scope)
        sending = self._with_headers(send, origin if is_allowed else "", ends=ends)
        try:
            self._check(scope, headers)
            unpacker = unpacker_for(", ".join(headers.getlist("content-encoding")))
        except Refused as error:
            await dialect_of(scope["path"])(error)(scope, receive, close_after(sending))
            return
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            allowed = preflight_headers(headers) if is_allowed else []
            await close_after(sending)(
                {"type": "http.response.start", "status": 204, "headers": allowed}
            )
            await sending({"type": "http.response.body", "body": b""})
            return
        scope = {**scope, BODY_IS_READ: asyncio.Event()}
        await self._app(scope, self._bound_body(scope, receive, unpacker), sending)

    def _check(self, scope: Scope, headers: Headers) -> None:
        if _is_crowded(scope) and scope["path"] not in HEALTH_PATHS:
            again = {"retry-after": "1"}
            raise Refused(503, "there are too many connections; try again", headers=again)
        hosts = headers.getlist("host")
        # The check protects browsers, which always send a Host header
        is_probe = scope.get("http_version") == "1.0" and scope["path"] in PROBED_PATHS
        if is_probe and hosts in ([], [""]):
            hosts = []
        elif len(hosts) != 1 or host_name(hosts[0]) not in self._names:
            raise Refused(403, "the Host header names another machine; see --allow-host")
        origin = headers.get("origin")
        hosts += filter(None, [scope.get(HOST)])
        is_own = any(_is_own(origin or "", host) for host in hosts)
        if origin is not None and origin not in self._origins and not is_own:
            raise Refused(403, "requests from other origins are refused; see --allow-origin")
        if headers.get("sec-fetch-site") == "cross-site" and (origin or "") not in self._origins:
            # Other sites may link to the page, but send no other requests
            is_link = headers.get("sec-fetch-mode") == "navigate" and scope["path"] in (
                "/",
                ENTRANCE,
            )
            if not (is_link and scope["method"] in ("GET", "HEAD")):
                raise Refused(403, "requests from other sites are refused; see --allow-origin")
        if (length := headers.get("content-length")) is not None:
            if not (length.isascii() and length.isdigit()):
                raise Refused(400, "Content-Length is not a number")
            if len(length) > len(str(FILE_BYTES)) or int(length) > largest_body(scope["path"]):
                raise too_large(scope["path"])

    def _bound_body(self, scope: Scope, receive: Receive, unpacker: Unpacker | None) -> Receive:
        """Limits the bytes of a body while it is read, as Content-Length may be missing or wrong.

        For a compressed body, the decompressed bytes are limited, too.
        """
        loop = asyncio.get_running_loop()
        until, n_bytes, is_read = loop.time() + self._body_seconds, 0, False
        most = largest_body(scope["path"])

        async def receive_bounded() -> Message:
            nonlocal n_bytes, is_read
            if is_read:  # now only wait for the client to leave
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise Refused(408, "the body did not arrive in time") from None
            n_bytes += len(message.get("body", b""))
            if n_bytes > most:
                raise too_large(scope["path"])
            if unpacker is not None and message["type"] == "http.request":
                body = unpacker.unpack(message.get("body", b""), most)
                if unpacker.n_bytes > most:
                    raise too_large(scope["path"])
                message = {**message, "body": body}
            if not message.get("more_body", False):
                is_read = True
                scope[BODY_IS_READ].set()
                if unpacker is not None and message["type"] == "http.request":
                    unpacker.end()
            return message

        return receive_bounded

    def _with_headers(self, send: Send, origin: str, *, ends: bool = False) -> Send:
        more = [*ENCODED_HEADERS]
        if self._origins:
            more.append((b"vary", b"origin"))
        if origin:
            more.append((b"access-control-allow-origin", origin.encode("latin-1")))
            more.append((b"access-control-expose-headers", EXPOSED.encode()))
            if self._origins.has_credentials(origin):
                more.append((b"access-control-allow-credentials", b"true"))

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in message["headers"]}
                added = [header for header in more if header[0] not in names]
                # Announce the close, so that the client does not reuse the connection
                last = ends or self._is_draining()
                closing = [(b"connection", b"close")] if last and b"connection" not in names else []
                message = {**message, "headers": [*message["headers"], *added, *closing]}
            await send(message)

        return sending


def _is_crowded(scope: Scope) -> bool:
    return IS_CROWDED in scope.get("state", ())


def _is_own(origin: str, host: str) -> bool:
    """True if an origin is that of our own page, also through a proxy."""
    # Ignore the scheme: a proxy may serve the page over https
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def largest_body(path: str) -> int:
    return FILE_BYTES if path in FILE_PATHS else BODY_BYTES


def too_large(path: str) -> Refused:
    return Refused(413, f"the body has more than {largest_body(path):,} bytes")


def preflight_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Response headers of a preflight: allow the headers that the page asks for."""
    allowed = list(PREFLIGHT)
    requested = headers.get("access-control-request-headers", "")
    if _HEADER_NAMES.fullmatch(requested):
        allowed.append(("access-control-allow-headers", requested))
    if headers.get(f"access-control-request-{PRIVATE}") == "true":
        allowed.append((f"access-control-allow-{PRIVATE}", "true"))
    return [(name.encode(), value.encode()) for name, value in allowed]


def close_after(send: Send) -> Send:
    """Closes the connection after an answer that does not read the body."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await send(message)

    return sending
