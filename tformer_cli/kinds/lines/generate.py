"""Generating text with a language model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, Unpack

from tformer_cli.kinds.opening.generator import open_generator
from tformer_cli.search.translator import LINE_ENDS
from tformer_cli.text.lines import check_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tformer_cli.search.generator import GeneratedText, Generation
    from tformer_cli.search.keywords import TranslatorOptions

GenerationFormat = Literal["text", "jsonl"]
BUFFER_PROMPTS = 64


def generate_texts(
    model: Path | str,
    prompts: Iterable[str] = ("",),
    *,
    stops: Sequence[str] = (),
    **options: Unpack[TranslatorOptions],
) -> list[Generation]:
    """Continues prompts; an empty one is the beginning of a text.

    Args:
        model: the directory of a language model.
        prompts: the prompts.
        stops: texts that end what is written.
        **options: of `open_generator`: seed, sampling, temperature, max_length, n_best, …

    Raises:
        TypeError: if the prompts are one string, or hold something else.
    """
    check_lines(prompts, "prompts")
    return open_generator(model, stops=stops, **options).generator.generate(list(prompts))


def format_generation(
    generation: Generation,
    output_format: GenerationFormat,
    *,
    lists_texts: bool = False,
    is_one_line: bool = True,
) -> str:
    """Writes a prompt and what follows it, without a line end behind it.

    Args:
        generation: what to write.
        output_format: "text": the prompt and the best text; "jsonl": an object.
        lists_texts: "jsonl": add a "texts" list.
        is_one_line: "text": line ends in it become spaces.
    """
    best = generation.texts[0]
    if output_format == "text":
        text = generation.prompt + best.text
        return text.translate(LINE_ENDS) if is_one_line else text
    record: dict[str, Any] = {
        "index": generation.index,
        "prompt": generation.prompt,
        **_fields(best),
    }
    if generation.is_truncated:
        record["truncated"] = True
    if lists_texts:
        record["texts"] = [_fields(text) for text in generation.texts]
    return json.dumps(record, ensure_ascii=False)


def _fields(text: GeneratedText) -> dict[str, Any]:
    return {
        "text": text.text,
        "score": text.score,
        "log_probability": text.log_probability,
        "tokens": len(text.token_ids),
        "finished": text.is_finished,
    }
