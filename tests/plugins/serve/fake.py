"""A service that translates by upper-casing, and clients of an ASGI application."""

import asyncio
import json
import time
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import urlencode

import numpy as np

from tformer_cli.kinds.lines.classify import LabeledText
from tformer_cli.kinds.lines.embed import EmbeddedText
from tformer_cli.plugins.serve.app import make_app
from tformer_cli.plugins.serve.config import ServeSettings
from tformer_cli.plugins.serve.documents import Documents
from tformer_cli.plugins.serve.models import Busy, Draining, Late, ModelInfo, UnknownModel
from tformer_cli.plugins.serve.site import Site
from tformer_cli.search.generator import GeneratedText, Generation
from tformer_cli.search.translator import TranslatedText, Translation


def model(name, kind="translate", verbs=("translate",), source="", target=""):
    return ModelInfo(
        name=name, kind=kind, verbs=verbs, source_language=source, target_language=target,
        state="loaded", bytes=1000, hash="0" * 64,
    )  # fmt: skip


MODELS = (
    model("en-fr", source="en", target="fr"),
    model("fr-de", source="fr", target="de"),
    model("lm", "language-model", ("generate",)),
    model("bert", "embed", ("embed",)),
    model("stars", "classify", ("classify", "embed")),
)


def translation(index, text, n_best):
    hypothesis_texts = [f"{text.upper()}{'!' * rank}" for rank in range(n_best)]
    hypotheses = [
        TranslatedText(hypothesis, -1.0, -0.5 - rank, (5, 6), True, (2,), (-0.5, -0.25, -0.25))
        for rank, hypothesis in enumerate(hypothesis_texts)
    ]
    return Translation(index, text, tuple(hypotheses), (7, 8), 1, False)


class FakeService:
    """Answers at once, or with the delays and errors that a test sets."""

    def __init__(self, models=MODELS, pivot=None):
        self.models, self.pivot = list(models), pivot
        self.stats = SimpleNamespace(queue_units=0, tokens_total=3)
        self.calls = []
        self.n_yielded = self.n_ended = 0
        self.seconds = 0.0
        self.fails = None
        self.is_ready = True

    def break_behind_the_first(self):
        """Fails on all texts of a request except the first."""
        plain = self.result

        def result(verb, index, text, settings):
            if index:
                raise RuntimeError("/secret")
            return plain(verb, index, text, settings)

        self.result = result

    def info(self):
        return self.models

    def route(self, source, target):
        pairs = {(info.source_language, info.target_language): info.name for info in self.models}
        if (source, target) in pairs:
            return (pairs[source, target],)
        by_pivot = (pairs.get((source, self.pivot)), pairs.get((self.pivot, target)))
        if self.pivot and all(by_pivot):
            return by_pivot
        raise UnknownModel(f"no model translates {source} into {target}")

    async def submit(
        self, name, verb, texts, *, settings=None, constraints=None, priority=None, deadline=None,
        is_streamed=False, client=None, has_place=False, is_admitted=False, versions=None,
    ):  # fmt: skip
        self.calls.append(
            SimpleNamespace(
                name=name, verb=verb, texts=list(texts), settings=dict(settings or {}),
                constraints=constraints, priority=priority, deadline=deadline,
                client=client, has_place=has_place, is_admitted=is_admitted, versions=versions,
            )
        )  # fmt: skip
        if self.fails is not None:
            raise self.fails
        try:
            for index, text in enumerate(texts):
                await asyncio.sleep(self.seconds)
                self.n_yielded += 1
                result = self.result(verb, index, text, settings or {})
                if is_streamed:
                    yield result.texts[0].text[:2]
                yield result
        finally:
            self.n_ended += 1

    def result(self, verb, index, text, settings):
        n_best = settings.get("n_best", 1)
        if verb == "translate":
            return translation(index, text, n_best)
        if verb == "generate":
            texts = [GeneratedText(f" and {n}", (4, 5), -1.0, -1.0, True) for n in range(n_best)]
            return Generation(index, text, tuple(texts), n_tokens=len(text))
        if verb == "embed":
            vector = np.array([len(text), 0.5, -1.0], np.float32)
            return EmbeddedText(index=index, text=text, vector=vector, n_tokens=len(text))
        return LabeledText(index=index, text=text, labels=(("good", 0.75), ("bad", 0.25)))

    def aligner(self, name, versions=None):
        return None

    async def load(self, name):
        self._set(name, "loaded")

    async def unload(self, name):
        self._set(name, "unloaded")

    def _set(self, name, state):
        if name not in [info.name for info in self.models]:
            raise UnknownModel(f"there is no model {name}")
        self.models = [replace(m, state=state) if m.name == name else m for m in self.models]

    def ready(self):
        return self.is_ready

    async def drain(self, seconds, has_more=None):
        self.is_ready = False


FAULTS = {
    "busy": (Busy("the queue is full", 3), 429),
    "draining": (Draining("the service ends"), 503),
    "late": (Late("it waited too long"), 504),
}


class Answer(SimpleNamespace):
    """A response: status, headers, body."""

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode()

    @property
    def lines(self):
        return [json.loads(line) for line in self.body.splitlines()]


class Client:
    """Calls an application in this process, as a server would."""

    def __init__(self, service=None, **details):
        settings = details.pop("settings", ServeSettings())
        details.setdefault("documents", Documents(is_apart=False))
        self.service = service or FakeService()
        self.site = Site(service=self.service, settings=settings, **details)
        self.app = make_app(self.site)

    def get(self, path, **options):
        return self.ask("GET", path, **options)

    def post(self, path, **options):
        return self.ask("POST", path, **options)

    def ask(self, method, path, **options):
        return asyncio.run(self.ask_async(method, path, **options))

    async def ask_async(
        self, method, path, *, json_=None, form=None, body=b"", headers=(), host="localhost:5000",
        chunks=None, leaves=None, client="127.0.0.1", version="1.1",
    ):  # fmt: skip
        """Sends a request; `chunks` are its body as it arrives, `leaves` ends the connection."""
        pairs = [("host", host)] if host is not None else []
        if json_ is not None:
            body = json.dumps(json_).encode()
            pairs.append(("content-type", "application/json"))
        if form is not None:
            body = urlencode(form).encode()
            pairs.append(("content-type", "application/x-www-form-urlencoded"))
        pairs += headers.items() if isinstance(headers, dict) else headers
        path, _, query = path.partition("?")
        scope = {
            "type": "http", "method": method, "path": path, "query_string": query.encode(),
            "headers": [(name.lower().encode(), str(v).encode("latin-1")) for name, v in pairs],
            "scheme": "http", "http_version": version, "asgi": {"version": "3.0"}, "root_path": "",
            "server": ("127.0.0.1", 5000), "raw_path": path.encode(),
        }  # fmt: skip
        scope["client"] = client and (client, 1)
        parts = [body] if chunks is None else list(chunks)
        messages = [
            {"type": "http.request", "body": part, "more_body": n < len(parts)}
            for n, part in enumerate(parts, 1)
        ]
        answer, left = Answer(status=0, headers=[], body=b""), leaves or asyncio.Event()

        async def receive():
            await asyncio.sleep(0)
            if messages:
                return messages.pop(0)
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = [(n.decode(), v.decode("latin-1")) for n, v in message["headers"]]
            else:
                answer.body += message.get("body", b"")

        await self.app(scope, receive, send)
        answer.named = dict(answer.headers)
        return answer


async def messages_without_a_body(path):
    """Returns the answer to a request whose body never arrives, after a short timeout."""
    client = Client()
    client.app._body_seconds = 0.05
    sent = []

    async def receive():
        await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": path, "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }  # fmt: skip
    started = time.monotonic()
    await client.app(scope, receive, send)
    assert time.monotonic() - started < 5
    return sent
