"""The part of OpenAI's API that these models support: models, completions and embeddings.

chat.py has chats, as which OpenAI's clients can request translations.
"""

import base64
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tformer_cli.plugins.serve.config import MOST_HYPOTHESES, MOST_TOKENS
from tformer_cli.plugins.serve.dialects import openai_error, openai_object, plain_error
from tformer_cli.plugins.serve.requests import Fields, Refused, read_json
from tformer_cli.plugins.serve.site import Results, Route, Site, prepend, refusal
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from tformer_cli.plugins.serve.models import ModelInfo
    from tformer_cli.search.generator import GeneratedText, Generation

OWNER = "tformer"
DEFAULT_TOKENS = 16
"""OpenAI's default of `max_tokens`."""
MOST_STOPS = 4
_UNUSED: dict[str, tuple[object, ...]] = {
    "best_of": (None, 1),
    "echo": (None, False),
    "frequency_penalty": (None, 0, 0.0),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "presence_penalty": (None, 0, 0.0),
    "suffix": (None, ""),
}
"""Unsupported fields, and the values of each that change nothing; others are refused."""


def _model_object(info: "ModelInfo", site: Site) -> dict[str, Any]:
    created = int(site.metrics.started)
    return {"id": info.name, "object": "model", "created": created, "owned_by": OWNER}


async def models(site: Site, request: Request) -> Response:
    site.check_key(request)
    return JSONResponse(
        {"object": "list", "data": [_model_object(info, site) for info in site.service.info()]}
    )


async def model(site: Site, request: Request) -> Response:
    site.check_key(request)
    name = request.path_params["name"]
    for info in site.service.info():
        if info.name == name:
            return JSONResponse(_model_object(info, site))
    raise Refused(404, "there is no such model", code="model_not_found", param="model")


def _texts(site: Site, fields: Fields, name: str) -> tuple[str, ...]:
    value = fields.get(name)
    if isinstance(value, list) and any(isinstance(item, int | list) for item in value):
        raise Refused(400, f"{name}: token ids are not supported; send text", param=name)
    texts = fields.texts(name)
    site.check_texts(texts, name)
    if not texts:
        raise Refused(400, f"{name}: is missing", param=name)
    return texts


def _search(fields: Fields) -> dict[str, object]:
    """Returns the settings of the search, or of sampling, in a request."""
    for name, values in _UNUSED.items():
        if fields.get(name) not in values:
            raise Refused(400, f"{name}: is not supported; omit it", param=name)
    temperature = fields.number("temperature", 0.0, 2.0)
    n_texts = fields.integer("n", 1, MOST_HYPOTHESES) or 1
    stops = fields.texts("stop")
    if len(stops) > MOST_STOPS or not all(stops):
        raise Refused(400, f"stop: must be at most {MOST_STOPS} texts, none empty", param="stop")
    n_tokens = fields.integer("max_tokens", 1, MOST_TOKENS)
    settings: dict[str, object] = {
        "max_length": DEFAULT_TOKENS if n_tokens is None else n_tokens,
        "n_best": n_texts if n_texts > 1 else None,
        "seed": fields.integer("seed", 0, 2**63 - 1),
        "stops": stops or None,
    }
    if temperature == 0.0:  # greedy
        return {**settings, "sampling": False, "beam_size": n_texts}
    top_p = fields.number("top_p", 1e-6, 1.0)
    sampling = {"temperature": temperature, "top_p": top_p}
    return {**settings, **sampling, "sampling": True}


async def completions(site: Site, request: Request) -> Response:
    """Continues a prompt, or several, with a language model."""
    site.check_key(request)
    fields = await read_json(request)
    name = fields.text("model")
    infos = [info for info in site.service.info() if info.name == name]
    if infos and "translate" in infos[0].verbs:
        raise Refused(
            400,
            f"{name} is a translation model and has no completions; use /v1/chat/completions or "
            "/translate",
            param="model",
        )
    info = site.model(name, "generate")
    prompts = _texts(site, fields, "prompt")
    site.check_texts(fields.texts("stop"), "stop")
    settings = _search(fields)
    ask = partial(
        site.results, info.name, "generate", prompts, settings=settings,
        deadline=site.deadline(fields),
    )  # fmt: skip
    answer = _Completion(info.name, int(settings["max_length"]))  # type: ignore[call-overload]
    if fields.flag("stream"):
        # Await the first event before sending the status, so that an error can set the status
        is_one = len(prompts) == 1 and settings["n_best"] is None
        events = answer.stream_events(ask(is_streamed=is_one))
        first = await anext(events)
        return StreamingResponse(prepend(first, events), media_type="text/event-stream")
    async with aclosing(ask()) as results:
        return JSONResponse(answer.whole([generation async for generation in results]))


class _Completion:
    """The answer to a request for completions."""

    def __init__(self, model: str, max_length: int) -> None:
        self._max_length = max_length
        self._head = {
            "id": f"cmpl-{token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, generations: "list[Generation]") -> dict[str, Any]:
        texts = [text for generation in generations for text in generation.texts]
        choices = [self._choice(index, text) for index, text in enumerate(texts)]
        n_read = sum(generation.n_tokens for generation in generations)
        n_written = sum(len(text.token_ids) for text in texts)
        usage = {
            "prompt_tokens": n_read,
            "completion_tokens": n_written,
            "total_tokens": n_read + n_written,
        }
        return {**self._head, "choices": choices, "usage": usage}

    async def stream_events(self, results: "Results") -> AsyncGenerator[str, None]:
        """Yields texts as chunks; a single text comes in parts while it is generated."""
        index, part = 0, ""
        async with aclosing(results):
            try:
                async for result in results:
                    if isinstance(result, str):
                        part += result
                        choice: dict[str, Any] = {
                            "index": 0,
                            "text": result,
                            "logprobs": None,
                            "finish_reason": None,
                        }
                        yield format_event({**self._head, "choices": [choice]})
                        continue
                    for text in result.texts:
                        choice = self._choice(index, text)
                        choice["text"] = choice["text"][len(part) :]
                        yield format_event({**self._head, "choices": [choice]})
                        index += 1
            except Exception as error:
                if index == 0 and not part:
                    raise
                # The status is already sent, so the error becomes an event
                yield format_event({"error": openai_object(refusal(error))})
        yield "data: [DONE]\n\n"

    def _choice(self, index: int, text: "GeneratedText") -> dict[str, Any]:
        # A text that ended at a stop text is unfinished, too, but shorter than the limit
        is_cut = not text.is_finished and len(text.token_ids) >= self._max_length
        return {
            "index": index,
            "text": text.text,
            "logprobs": None,
            "finish_reason": "length" if is_cut else "stop",
        }


def format_event(content: object) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


async def embeddings(site: Site, request: Request) -> Response:
    """Returns a vector for each text."""
    site.check_key(request)
    fields = await read_json(request)
    encoding = fields.text("encoding_format") or "float"
    if encoding not in ("float", "base64"):
        raise Refused(400, "encoding_format: must be float or base64", param="encoding_format")
    info = site.model(fields.text("model"), "embed")
    texts = _texts(site, fields, "input")
    if any(map(is_blank, texts)):
        raise Refused(400, "input: a text is blank", param="input")
    results = await _compute_embeddings(site, info.name, texts, site.deadline(fields))
    width = len(results[0].vector)
    if fields.integer("dimensions", 1, 1 << 20) not in (None, width):
        raise Refused(400, f"dimensions: must be {width}, or omitted", param="dimensions")
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _base64(result.vector) if encoding == "base64" else result.vector.tolist(),
        }
        for index, result in enumerate(results)
    ]
    n_tokens = sum(result.n_tokens for result in results)
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return JSONResponse({"object": "list", "data": data, "model": info.name, "usage": usage})


async def _compute_embeddings(
    site: Site, name: str, texts: tuple[str, ...], deadline: float, **settings: object
) -> list[Any]:
    results = site.results(name, "embed", texts, settings=settings, deadline=deadline)
    async with aclosing(results):
        return [result async for result in results]


def _base64(vector: Any) -> str:  # noqa: ANN401 - an array
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


async def embed(site: Site, request: Request) -> Response:
    """Returns vectors in the format of text-embeddings-inference."""
    site.check_key(request)
    fields = await read_json(request)
    info = site.model(fields.text("model"), "embed")
    texts = _texts(site, fields, "inputs")
    if any(map(is_blank, texts)):
        raise Refused(400, "inputs: a text is blank")
    is_unit = fields.flag("normalize", default=True)
    rows = await _compute_embeddings(
        site, info.name, texts, site.deadline(fields), unit_length=is_unit
    )
    return JSONResponse([row.vector.tolist() for row in rows])


ROUTES = (
    Route("GET", "/v1/models", models, openai_error),
    Route("GET", "/v1/models/{name}", model, openai_error),
    Route("POST", "/v1/completions", completions, openai_error),
    Route("POST", "/v1/embeddings", embeddings, openai_error),
    Route("POST", "/embed", embed, plain_error),
)
