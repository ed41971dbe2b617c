"""Translations as chats: OpenAI's chat completions and responses, the only API of many tools.

The text is the last user message. If it begins with "translate", everything before the first colon
of that line is an instruction, and is not translated. The languages come from the fields `source`
and `target`, from the name of the model, or from the instruction or the system messages, which
name them in English; their other words have no effect. No model here answers questions.
"""

import re
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tformer_cli.plugins.serve.config import MOST_HYPOTHESES, MOST_TOKENS
from tformer_cli.plugins.serve.dialects import openai_error, openai_object
from tformer_cli.plugins.serve.languages import NAMES, Way, code_in, name_of
from tformer_cli.plugins.serve.openai import format_event
from tformer_cli.plugins.serve.requests import Fields, Refused, read_json
from tformer_cli.plugins.serve.site import Route, Site, prepend, refusal
from tformer_cli.plugins.serve.translations import guess_language, has_words

INSTRUCTION = re.compile(
    r"\s*(?:please,? )?translate(?:[ \t]*:|\b[^\n:]{0,200}:(?=\s|$))[ \t]*\n*", re.IGNORECASE
)
SIDES = ("source", "target")
TEXT_PARTS = ("text", "input_text")
SYSTEM = ("system", "developer")
_UNUSED: dict[str, tuple[object, ...]] = {
    "audio": (None,),
    "background": (None, False),
    "conversation": (None,),
    "function_call": (None, "none", "auto"),
    "functions": (None, []),
    "logprobs": (None, False),
    "modalities": (None, ["text"]),
    "previous_response_id": (None,),
    "response_format": (None, {"type": "text"}),
    "stop": (None, "", []),
    "text": (None, {}, {"format": {"type": "text"}}),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
}
"""Unsupported fields, and the values of each that change nothing; others are refused."""
_NAMED = "|".join(
    sorted((re.escape(name.partition("_(")[0]) for name in NAMES.values()), key=len, reverse=True)
)
_PHRASES = {
    "source": (
        rf"\bfrom (?:the )?({_NAMED})\b",
        rf"\bsource(?: language)?(?: is)?\W{{1,3}}({_NAMED})\b",
    ),
    "target": (
        rf"\b(?:in)?to (?:the )?({_NAMED})\b",
        rf"\btarget(?: language)?(?: is)?\W{{1,3}}({_NAMED})\b",
        rf"\bin ({_NAMED})\b",
    ),
}
"""Phrases that name a language, the clearest first."""
_SENTENCE_END = re.compile(r"[.!?;\n]+")
_ABOUT_TRANSLATING = re.compile(r"translat|language", re.IGNORECASE)
LOOKED_AT = 4000
"""Characters of a system message that are searched for languages."""
_PAIR = re.compile(rf"\b({_NAMED})(?: |-|–| ?-> ?| ?→ ?| (?:in)?to )({_NAMED})\b", re.IGNORECASE)
_CODES = {
    "source": re.compile(r"\bfrom ([a-z]{2,3}(?:-[a-z]{2,4})?)\b", re.IGNORECASE),
    "target": re.compile(r"\b(?:in)?to ([a-z]{2,3}(?:-[a-z]{2,4})?)\b", re.IGNORECASE),
}
_ANY_NAME = re.compile(rf"\b(?:{_NAMED})\b", re.IGNORECASE)
_WORDS = r"(?:the )?([^\W\d_]+(?:[ -][^\W\d_]+)?)(?: language)?"
_PLACES = {
    "source": re.compile(rf"\bfrom {_WORDS}(?= (?:in)?to\b|$)", re.IGNORECASE),
    "target": re.compile(rf"\b(?:in)?to {_WORDS}$", re.IGNORECASE),
}
"""Where the name of a language would stand, known or not."""
_NO_LANGUAGE = re.compile(
    r"(?:an?|another|any|each|every|her|him|his|it|me|my|our|other|source|target|that|their|them|"
    r"this|us|users?|whatever|which|you|your)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Chat:
    """The text of a request, and the words that name its languages."""

    text: str
    instruction: str
    """The instruction at the start of the text, if there is one."""
    system: str


def message_text(message: dict[str, Any], name: str) -> str:
    """Returns the text of a message, whose content may be a list of parts."""
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list):
        raise Refused(400, f"{name}: the content must be text", param=name)
    texts = []
    for part in parts:
        kind = part.get("type", "text") if isinstance(part, dict) else None
        if kind not in (*TEXT_PARTS, "output_text") or not isinstance(part.get("text"), str):
            raise Refused(400, f"{name}: only text parts are supported", param=name)
        texts.append(part["text"])
    return "".join(texts)


def read_chat(messages: object, name: str, instructions: str = "") -> Chat:
    """Reads the messages of a request from the field `name`; a plain text is one message."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise Refused(400, f"{name}: must be a list of messages", param=name)
    of_user = [message for message in messages if message.get("role") == "user"]
    if not of_user:
        raise Refused(400, f"{name}: there is no user message to translate", param=name)
    of_system = [message for message in messages if message.get("role") in SYSTEM]
    system = [instructions, *(message_text(message, name) for message in of_system)]
    text = message_text(of_user[-1], name)
    match = INSTRUCTION.match(text)
    start = match.end() if match else 0
    return Chat(text[start:], text[:start], "\n".join(filter(None, system)))


def named_languages(text: str) -> dict[str, str]:
    """Finds the languages that a text names in English, such as "from English to French".

    Only sentences about translating or languages count.
    """
    sentences = _SENTENCE_END.split(text[:LOOKED_AT])
    looked_at = "\n".join(filter(_ABOUT_TRANSLATING.search, sentences))
    if pair := _PAIR.search(looked_at):
        return dict(zip(SIDES, pair.groups(), strict=True))
    languages = {}
    for side, patterns in _PHRASES.items():
        matches = (re.search(pattern, looked_at, re.IGNORECASE) for pattern in patterns)
        if first := next(filter(None, matches), None):
            languages[side] = first[1]
    return languages


def placed_languages(text: str, *, is_instruction: bool) -> dict[str, str]:
    """Finds the words that stand where a language would, known or not.

    In a system message, which says much else, only capitalized words count.
    """
    languages = {}
    for sentence in _SENTENCE_END.split(text[:LOOKED_AT]):
        looked_at = sentence.strip(" \t:\r") if _ABOUT_TRANSLATING.search(sentence) else ""
        for side, pattern in _PLACES.items():
            match = pattern.search(looked_at)
            if match is None or _NO_LANGUAGE.match(match[1]):
                continue
            name = _ANY_NAME.search(match[1])
            if name or is_instruction or match[1] != match[1].lower():
                languages[side] = name[0] if name else match[1]
    return languages


def find_code(site: Site, word: str) -> str:
    """Returns the code of a language, given its code or its English name."""
    code = site.languages.find(word)
    if code is None:
        matches = (code for code in site.languages.codes if has_name(code, word))
        code = next(matches, None)
    if code is None:
        raise Refused(400, f"{word[:40]} is not a language of this service", code="unsupported")
    return code


def has_name(code: str, word: str) -> bool:
    return name_of(code).partition(" (")[0].lower() == word.lower()


async def find_way(site: Site, fields: Fields, chat: Chat) -> tuple[str, Way]:
    """Returns the model name for the answer, and the models that translate."""
    name = fields.text("model")
    models = site.service.info()
    infos = {model.name: model for model in models if "translate" in model.verbs}
    words = placed_languages(chat.system, is_instruction=False)
    words |= named_languages(chat.system)
    words |= placed_languages(chat.instruction, is_instruction=True)
    for side, pattern in _CODES.items():
        for match in pattern.finditer(chat.instruction):
            if site.languages.find(match[1]) is not None:
                words[side] = match[1]
    words |= named_languages(chat.instruction)
    words |= {side: fields.text(side) for side in SIDES if fields.text(side)}
    if words.get("source", "").lower() == "auto":
        del words["source"]
    if name not in infos:
        if any(model.name == name for model in models):
            raise Refused(
                400, f"{name} does not translate, and no model here chats; use /v1/completions or "
                "/v1/embeddings", param="model",
            )  # fmt: skip
        if pair := split_pair(site, name):
            words |= dict(zip(SIDES, pair, strict=True))
        elif name:
            site.model(name, "translate")  # raises the right error
    info = infos.get(name) or (next(iter(infos.values())) if len(infos) == 1 else None)
    codes = {side: find_code(site, word) for side, word in words.items()}
    if info is not None and not info.languages:
        own = {"source": info.source_language, "target": info.target_language}
        for side, code in codes.items():
            if site.languages.find(own[side]) not in (code, None):
                raise Refused(
                    400,
                    f"{info.name} translates from {name_of(own['source'])} to "
                    f"{name_of(own['target'])}, not {'from' if side == 'source' else 'to'} "
                    f"{name_of(code)}",
                    param="model",
                )
        return info.name, Way((info.name,))
    if "target" not in codes:
        raise Refused(
            400, 'target: is missing; name the language in a field "target", with a model such as '
            'en-fr, or in the text: "Translate to French: …"', param="target",
        )  # fmt: skip
    target = codes["target"]
    source = codes.get("source")
    if source is None:
        source, _ = await guess_language(site, site.languages, [chat.text], target)
    if info is None:
        way = site.languages.checked_way(source, target)
        return name or f"{source}-{target}", way
    sides = {"source_language": source, "target_language": target}
    return info.name, Way((info.name,), {key: code_in(info, code) for key, code in sides.items()})


def split_pair(site: Site, name: str) -> tuple[str, str] | None:
    """Splits a name such as en-fr into two languages; None if it is not a pair."""
    parts = name.split("-")
    for cut in range(1, len(parts)):
        pair = "-".join(parts[:cut]), "-".join(parts[cut:])
        if all(site.languages.find(code) is not None for code in pair):
            return pair
    return None


@dataclass
class Output:
    """The text written so far."""

    parts: list[list[str]] = field(default_factory=list)
    """The lines of each hypothesis."""
    n_read: int = 0
    n_written: int = 0
    is_cut: bool = False

    @property
    def texts(self) -> list[str]:
        return ["".join(lines) for lines in self.parts]


class ChatTranslation:
    """The translation of one chat, line by line."""

    def __init__(self, site: Site, fields: Fields, chat: Chat, model: str, way: Way) -> None:
        self.model, self._way = model, way
        self._site, self._lines = site, chat.text.split("\n")
        self._n = fields.integer("n", 1, MOST_HYPOTHESES) or 1
        limits = ("max_completion_tokens", "max_output_tokens", "max_tokens")
        numbers = [fields.integer(name, 1, 10**9) for name in limits]
        self._most = next((min(number, MOST_TOKENS) for number in numbers if number), None)
        self._deadline = site.deadline(fields)
        self.output = Output([[] for _ in range(self._n)])

    async def parts(self) -> AsyncGenerator[str, None]:
        """Yields the best translation line by line, each as soon as it is computed."""
        sources = [line.removesuffix("\r") for line in self._lines if has_words(line)]
        if not self._way.models or not sources:
            for rank in range(self._n):
                self.output.parts[rank].append("\n".join(self._lines))
            yield self.output.parts[0][0]
            return
        settings = {
            **self._way.settings,
            "n_best": self._n if self._n > 1 else None,
            "max_length": self._most,
        }
        results = self._site.results(
            self._way.models, "translate", sources, settings=settings, deadline=self._deadline
        )
        async with aclosing(results):
            for number, line in enumerate(self._lines):
                end = "\n" if number < len(self._lines) - 1 else ""
                texts = [line.removesuffix("\r")] * self._n
                if has_words(line):
                    translation = await anext(aiter(results))
                    ranked = [
                        translation.hypotheses[min(r, len(translation.hypotheses) - 1)]
                        for r in range(self._n)
                    ]
                    texts = [hyp.text for hyp in ranked]
                    self.output.n_read += len(translation.source_ids)
                    self.output.n_written += sum(len(hyp.token_ids) for hyp in ranked)
                    self.output.is_cut |= not all(hyp.is_finished for hyp in ranked)
                end = ("\r" if line.endswith("\r") else "") + end
                for rank, text in enumerate(texts):
                    self.output.parts[rank].append(text + end)
                yield texts[0] + end

    async def finish(self) -> Output:
        async with aclosing(self.parts()) as parts:
            async for _part in parts:
                pass
        return self.output


async def read_request(site: Site, request: Request, name: str) -> tuple[Fields, ChatTranslation]:
    """Reads a request whose messages are in the field `name`."""
    site.check_key(request)
    fields = await read_json(request)
    for unused, values in _UNUSED.items():
        if fields.get(unused) not in values:
            raise Refused(400, f"{unused}: is not supported; omit it", param=unused)
    chat = read_chat(fields.get(name), name, fields.text("instructions"))
    site.check_texts([chat.text], name)
    return fields, ChatTranslation(site, fields, chat, *await find_way(site, fields, chat))


async def stream_events(events: AsyncGenerator[str, None]) -> Response:
    # Await the first event before sending the status, so that an error can set the status
    first = await anext(events)
    return StreamingResponse(prepend(first, events), media_type="text/event-stream")


async def completions(site: Site, request: Request) -> Response:
    """Translates the last user message."""
    fields, work = await read_request(site, request, "messages")
    head = {"id": f"chatcmpl-{token_hex(12)}", "created": int(time.time()), "model": work.model}
    if fields.flag("stream"):
        options = fields.get("stream_options")
        has_usage = isinstance(options, dict) and options.get("include_usage") is True
        return await stream_events(chunk_events(work, head, has_usage=has_usage))
    output = await work.finish()
    choices: list[dict[str, Any]] = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None, "annotations": []},
            "logprobs": None,
            "finish_reason": finish_reason(output),
        }
        for index, text in enumerate(output.texts)
    ]
    answer = {
        **head,
        "object": "chat.completion",
        "choices": choices,
        "usage": usage_counts(output),
    }
    return JSONResponse(answer)


def finish_reason(output: Output) -> str:
    return "length" if output.is_cut else "stop"


def usage_counts(output: Output, names: Sequence[str] = ("prompt", "completion")) -> dict[str, Any]:
    counts = (output.n_read, output.n_written)
    usage = {f"{name}_tokens": count for name, count in zip(names, counts, strict=True)}
    return {**usage, "total_tokens": sum(counts)}


async def chunk_events(
    work: ChatTranslation, head: dict[str, Any], *, has_usage: bool
) -> AsyncGenerator[str, None]:
    """Yields the chunks of a streamed chat: parts of the text, then the reason it ended."""
    more = {"usage": None} if has_usage else {}

    def chunk(delta: dict[str, Any], index: int = 0, reason: str | None = None) -> str:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        event = {**head, "object": "chat.completion.chunk", "choices": [choice], **more}
        return format_event(event)

    has_begun = False
    try:
        async with aclosing(work.parts()) as parts:
            async for part in parts:
                if not has_begun:
                    yield chunk({"role": "assistant", "content": "", "refusal": None})
                has_begun = True
                yield chunk({"content": part})
        yield chunk({}, reason=finish_reason(work.output))
        for index, text in enumerate(work.output.texts[1:], 1):
            yield chunk({"role": "assistant", "content": text}, index)
            yield chunk({}, index, finish_reason(work.output))
        if has_usage:
            last = {**head, "object": "chat.completion.chunk", "choices": []}
            yield format_event({**last, "usage": usage_counts(work.output)})
    except Exception as error:
        if not has_begun:
            raise
        # The status is already sent, so the error becomes an event
        yield format_event({"error": openai_object(refusal(error))})
    yield "data: [DONE]\n\n"


async def responses(site: Site, request: Request) -> Response:
    """Translates `input`, a text or messages, as OpenAI's responses API does."""
    fields, work = await read_request(site, request, "input")
    answer = ResponseObject(work, fields)
    if fields.flag("stream"):
        return await stream_events(answer.events())
    await work.finish()
    return JSONResponse(answer.whole("completed"))


class ResponseObject:
    """The object of a response."""

    def __init__(self, work: ChatTranslation, fields: Fields) -> None:
        self._work, self._number = work, 0
        self._item = {"id": f"msg_{token_hex(12)}", "type": "message", "role": "assistant"}
        self._head: dict[str, Any] = {
            "id": f"resp_{token_hex(12)}",
            "object": "response",
            "created_at": int(time.time()),
            "model": work.model,
            "error": None,
            "instructions": fields.text("instructions") or None,
            "metadata": fields.get("metadata") or {},
            "parallel_tool_calls": False,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
        }

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _message(self, *parts: dict[str, Any]) -> dict[str, Any]:
        status = "completed" if parts else "in_progress"
        return {**self._item, "status": status, "content": list(parts)}

    def whole(self, status: str) -> dict[str, Any]:
        if status == "in_progress":
            return {**self._head, "status": status, "incomplete_details": None, "output": []}
        output = self._work.output
        usage = {
            **usage_counts(output, ("input", "output")),
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        return {
            **self._head,
            "status": "incomplete" if output.is_cut else status,
            "incomplete_details": {"reason": "max_output_tokens"} if output.is_cut else None,
            "output": [self._message(self._part(output.texts[0]))],
            "usage": usage,
        }

    def _event(self, kind: str, **more: object) -> str:
        event = {"type": kind, **more, "sequence_number": self._number}
        self._number += 1
        return f"event: {kind}\n{format_event(event)}"

    async def events(self) -> AsyncGenerator[str, None]:
        """Yields the events from which OpenAI's clients build a response."""
        place = {"output_index": 0}
        inside = {**place, "item_id": self._item["id"], "content_index": 0}
        has_begun = False
        try:
            async with aclosing(self._work.parts()) as parts:
                async for part in parts:
                    if not has_begun:
                        has_begun = True
                        for kind in ("created", "in_progress"):
                            now = self.whole("in_progress")
                            yield self._event(f"response.{kind}", response=now)
                        added = self._message()
                        yield self._event("response.output_item.added", **place, item=added)
                        empty = self._part("")
                        yield self._event("response.content_part.added", **inside, part=empty)
                    delta = {"delta": part, "logprobs": []}
                    yield self._event("response.output_text.delta", **inside, **delta)
            text = self._work.output.texts[0]
            whole = self._part(text)
            text_fields = {"text": text, "logprobs": []}
            yield self._event("response.output_text.done", **inside, **text_fields)
            yield self._event("response.content_part.done", **inside, part=whole)
            item = self._message(whole)
            yield self._event("response.output_item.done", **place, item=item)
            end = self.whole("completed")
            yield self._event(f"response.{end['status']}", response=end)
        except Exception as error:
            if not has_begun:
                raise
            error_fields = openai_object(refusal(error))
            yield self._event("error", **{**error_fields, "type": "error"})


ROUTES = (
    Route("POST", "/v1/chat/completions", completions, openai_error),
    Route("POST", "/v1/responses", responses, openai_error),
)
