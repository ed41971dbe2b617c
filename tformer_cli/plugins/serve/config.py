"""Settings of the service: its address, its access rules and its limits."""

import re
from dataclasses import dataclass
from pathlib import Path

from tformer_cli.errors import UsageError
from tformer_cli.plugins.serve.origins import Origins
from tformer_cli.plugins.serve.proxies import trusted_networks
from tformer_cli.settings import setting
from tformer_cli.wording import visible

PORT = 5000
"""LibreTranslate's port, the default of its clients."""
MOST_ALTERNATIVES = 10
MOST_BEAM = 16
MOST_HYPOTHESES = 20
MOST_TOKENS = 4096
"""Tokens that a language model may generate for one request."""
BODY_BYTES = 1 << 20
FILE_BYTES = 20 << 20
HEADER_SECONDS = 5.0
BODY_SECONDS = 30.0
CONNECTIONS = 256
DRAIN_SECONDS = 30.0
_PREFIX = re.compile(r"/?(?!\.)[\w~-][\w.~-]*(?:/(?!\.)[\w.~-]+)*/?", re.ASCII)
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:]+\]")


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Where the service listens and what it allows."""

    host: str = setting(
        "127.0.0.1",
        "Address to listen on; 0.0.0.0 means all interfaces (add --api-key-file).",
        "Network",
        metavar="HOST",
    )
    port: int = setting(PORT, "Port to listen on; 0 picks a free one.", "Network", min=0, max=65535)
    allow_host: tuple[str, ...] = setting(
        (),
        "Another host name that clients may use, such as that of a proxy. Repeatable.",
        "Network",
        metavar="HOST",
        shown_default="none",
    )
    allow_origin: tuple[str, ...] = setting(
        (),
        "Origin of a web page or browser extension that may use the service, such as "
        "https://example.org or moz-extension://*. Repeatable.",
        "Network",
        metavar="URL",
        shown_default="none",
    )
    trust_proxy: tuple[str, ...] = setting(
        (),
        "Address or network of a proxy whose X-Forwarded headers to trust, such as 10.0.0.0/8. "
        "Repeatable.",
        "Network",
        metavar="ADDRESS",
        shown_default="this machine",
    )
    url_prefix: str = setting(
        "",
        "Path under which a proxy publishes the service, such as /translate.",
        "Network",
        metavar="PREFIX",
        shown_default="none",
    )
    api_key_file: Path | None = setting(
        None,
        "Require API keys; FILE has one per line, each of at least 16 characters.",
        "Network",
        metavar="FILE",
        role="reads_file",
        shown_default="none",
    )
    timeout: float = setting(
        30.0,
        "Time limit of a request: a short one must be answered by then, one of many sentences "
        "begun.",
        "Limits",
        metavar="SECONDS",
        min=0.1,
        max=3600.0,
        shown_default="30",
    )
    max_characters: int = setting(5000, "Maximum length of a text.", "Limits", min=1, max=10**6)
    max_texts: int = setting(128, "Maximum texts per request.", "Limits", min=1, max=10**4)
    max_queue: int = setting(
        1000,
        "Maximum number of waiting sentences, counted separately for short and long requests; one "
        "client may fill half. Further requests are refused with status 429.",
        "Limits",
        min=1,
    )
    max_documents: int = setting(
        4,
        "Documents translated at once for one client; twice as many in total.",
        "Limits",
        min=1,
        max=64,
    )
    memory: str | None = setting(
        None,
        "Memory for all models, such as 2GB; the least recently used are unloaded first.",
        "Limits",
        metavar="SIZE",
        shown_default="unlimited",
    )
    cache: str = setting(
        "64MB",
        "Memory for results of earlier sentences; 0 disables the cache.",
        "Limits",
        metavar="SIZE",
    )
    workers: int = setting(
        1, "Worker processes; they share the models' memory.", "Machine", min=1, max=256
    )
    pivot: str | None = setting(
        None,
        "Translate through this language, such as en, where no model translates directly.",
        metavar="CODE",
        shown_default="none",
    )
    suggestions: Path | None = setting(
        None,
        "Accept better translations from users; append them to FILE, one JSON object per line.",
        metavar="FILE",
        role="writes_new_file",
        shown_default="none are accepted",
    )
    log: Path | None = setting(
        None,
        "Append one line of JSON per request, without its text, to FILE; - is stderr.",
        "Messages",
        metavar="FILE",
        role="writes_new_file",
        shown_default="none",
    )
    log_text: bool = setting(
        False,
        "Also log the texts of requests.",
        "Messages",
    )

    def __post_init__(self) -> None:
        Origins(self.allow_origin, asks_for_keys=self.api_key_file is not None)
        trusted_networks(self.trust_proxy)
        if self.url_prefix and _PREFIX.fullmatch(self.url_prefix) is None:
            raise UsageError(
                f'--url-prefix: "{visible(self.url_prefix, 100)}" is not a path; write it as '
                "/translate"
            )
        if self.log_text and self.log is None:
            raise UsageError("--log-text: there is no log; add --log FILE")
        for name in self.allow_host:
            if _HOST.fullmatch(name.lower()) is None:
                raise UsageError(
                    f'--allow-host: "{name}" is not a name of a machine; write it without port '
                    "and path"
                )
