"""Origins of web pages and browser extensions that may use the service (--allow-origin).

A page has an origin such as `https://example.org`, an extension `moz-extension://ID`, and a desktop
program with an embedded page `tauri://localhost`, `app://obsidian.md` and the like.
"""

import re
from collections.abc import Sequence

from tformer_cli.errors import UsageError
from tformer_cli.wording import visible

_ORIGIN = re.compile(
    r"([a-z][a-z0-9+.-]*)://(\*|(?:\*\.)?[a-z0-9._-]+|\[[0-9a-f:.]+\])(:(?:\d{1,5}|\*))?"
)
_USUAL_PORTS = {"http": ":80", "https": ":443"}
ANY = ("*", "null")
"""`null` is the origin of local files, and of frames that any page can create."""


class Origins:
    """The allowed origins."""

    def __init__(self, origins: Sequence[str] = (), *, asks_for_keys: bool = False) -> None:
        """Parses the values of the option; only with keys may any page be allowed."""
        self._named: list[re.Pattern[str]] = []
        self._any: list[re.Pattern[str]] = []
        for text in origins:
            pattern, is_any = parse_origin(text)
            if is_any and not asks_for_keys:
                raise UsageError(
                    f'--allow-origin: "{visible(text, 100)}" lets in any page that is opened on '
                    "this machine; name the origins, or require keys with --api-key-file"
                )
            (self._any if is_any else self._named).append(pattern)

    def __bool__(self) -> bool:
        return bool(self._named or self._any)

    def __contains__(self, origin: str) -> bool:
        return any(pattern.fullmatch(origin.lower()) for pattern in (*self._named, *self._any))

    def has_credentials(self, origin: str) -> bool:
        """True if a page may send cookies, such as those that a proxy requires."""
        return any(pattern.fullmatch(origin.lower()) for pattern in self._named)


def parse_origin(text: str) -> tuple[re.Pattern[str], bool]:
    """Returns a pattern for origins, and whether any page on the web can match it."""
    if text in ANY:
        return re.compile(".+" if text == "*" else text), True
    shown = text.lower().removesuffix("/")
    scheme, separator, rest = shown.partition("://")
    if not rest.isascii():  # browsers send Punycode
        try:
            rest = rest.encode("idna").decode()
        except UnicodeError:
            separator = ""
    match = _ORIGIN.fullmatch(f"{scheme}{separator}{rest}")
    if match is None:
        raise UsageError(
            f'--allow-origin: "{visible(text, 100)}" is not an origin; write https://example.org '
            "or moz-extension://*, without a path"
        )
    _, host, port = match.groups(default="")
    domain = host.removeprefix("*.")
    is_wide = host == "*" or (host != domain and "." not in domain and domain != "localhost")
    if port == _USUAL_PORTS.get(scheme):  # browsers omit it
        port = ""
    written = re.escape(f"{scheme}://{host}").replace(r"\*", r"[^/:@\s]+")
    written += r"(:\d+)?" if port == ":*" else port
    return re.compile(written), is_wide and scheme in _USUAL_PORTS
