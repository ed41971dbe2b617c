"""Errors quote only a little of what a client sent."""

import json
from urllib.parse import quote

import pytest

from tests.plugins.serve.fake import Client
from tformer_cli.plugins.serve.app import ROUTES
from tformer_cli.plugins.serve.models import Service
from tformer_cli.plugins.serve.requests import Refused
from tformer_cli.wording import LONGEST_QUOTE

FIELDS = {
    "/translate": {"q": "A.", "source": "en", "target": "fr", "format": "text", "alternatives": 0},
    "/detect": {"q": "A."},
    "/suggest": {"q": "a", "s": "b", "source": "en", "target": "fr"},
    "/translate_file": {"source": "en", "target": "fr"},
    "/v1/completions": {
        "model": "lm", "prompt": "The", "max_tokens": 2, "n": 1, "stream": False, "stop": ["a"],
        "suffix": None, "logit_bias": {}, "best_of": 1, "user": "u",
    },
    "/v1/embeddings": {"model": "cls", "input": "The", "encoding_format": "float"},
    "/v1/chat/completions": {"model": "lm", "messages": [{"role": "user", "content": "a"}]},
    "/embed": {"inputs": "The", "model": "cls"},
    "/api/translate": {
        "text": "A.", "model": "en-fr", "models": ["en-fr"], "beam_size": 2, "temperature": None,
        "prefix": "", "ban": None, "require": None, "priority": "bulk", "want": [],
        "source_language": None, "target_language": None, "timeout_ms": 4000,
    },
    "/api/classify": {"text": "A.", "model": "cls", "want": []},
    "/api/embed": {"text": "A.", "model": "cls", "pooling": "mean", "normalize": True},
    "/api/generate": {"text": "The", "model": "lm", "max_length": 3, "stop": ["a"], "stream": True},
    "/api/decision": {"text": "A.", "other": "B.", "target": "", "foil": "", "model": "en-fr"},
}  # fmt: skip
VALUES = ["x" * 300, "x" * 5001, "a b " * 80, "a b " * 2000, ["x y " * 80], {"x " * 150: "y"}]


def check(answer):
    for line in answer.text.splitlines():
        is_told = line.startswith(('{"error"', 'data: {"error"')) or '"event": "error"' in line
        if answer.status >= 400 or is_told:
            assert len(line) <= 2 * LONGEST_QUOTE + 200
            for part in ("x" * LONGEST_QUOTE, "a b " * 50, "x y " * 50, "x " * 100, "x%20" * 50):
                assert part not in line


@pytest.mark.slow
def test_no_error_quotes_much(zoo):
    models = {"en-fr": zoo["translate"], "lm": zoo["language_model"], "cls": zoo["classifier"]}
    client = Client(service=Service(models))
    for path, fields in FIELDS.items():
        for name in (*fields, "nosuch"):
            for value in VALUES:
                check(client.post(path, json_={**fields, name: value}))
        check(client.post(path, json_={**fields, "x " * 150: 1}))
    for value in ("x" * 5001, "x " * 150):
        for route in ROUTES:
            path = route.path.replace("{name}", quote(value))
            check(client.ask(route.method, path, json_={}))
            check(client.ask(route.method, path + quote(value), json_={}))


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("model: is missing", "model: is missing"),
        (f"{'x' * 201}: no", f"{'x' * 199}… no"),
        ("a " * 200, "a " * 200),
        (
            f'there is no "{"b " * 300}"; omit it',
            f'there is no "{"b " * 43}b… b{" b" * 43} "; omit it',
        ),
    ],
)
def test_a_message_keeps_its_begin_and_its_end(message, shown):
    quoted = Refused(400, message).message
    assert len(quoted) <= 2 * LONGEST_QUOTE
    assert quoted[:50] == shown[:50]
    assert quoted[-20:] == shown[-20:]
    assert json.dumps(quoted)
