"""Generating text with a language model, and how probable it finds texts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, Unpack

from tformer_cli.kinds.opening import open_model
from tformer_cli.search.text_windows import scored_windows
from tformer_cli.search.translator import LINE_ENDS
from tformer_cli.text.lines import given_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tformer_cli.kinds.stored_model import Opened
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
    """Continues prompts; an empty one is the beginning of a text."""
    prompts = list(given_lines(prompts, "prompts"))
    return open_model(model, "generate", stops=stops, **options).generator.generate(prompts)


def format_generation(
    generation: Generation,
    output_format: GenerationFormat,
    *,
    lists_texts: bool = False,
    is_one_line: bool = True,
) -> str:
    """Writes a prompt and its continuation, without a line end."""
    best = generation.texts[0]
    if output_format == "text":
        text = generation.prompt + best.text
        # One line a prompt, so that outputs stay aligned with inputs
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


def log_probabilities(
    opened: Opened,
    texts: Sequence[Sequence[int]],
    window: int,
    stride: int,
    progress: Callable[[], None] | None = None,
) -> list[list[float]]:
    """Computes log p of all tokens of texts, by the kernels if they can."""
    # The kernels refuse models and precisions that they do not know; torch knows all
    scorer = opened.generator.compiled_scorer()
    if scorer is not None:
        return scored_windows(
            scorer,
            texts,
            opened.config,
            window=window,
            stride=stride,
            before_batch=progress or (lambda: None),
        )
    from tformer_cli.runtime import autocast, check_threads
    from tformer_cli.search.scoring import score_texts

    check_threads()
    with autocast(opened.device, opened.products):
        return score_texts(
            opened.directory.model,
            texts,
            window=window,
            stride=stride,
            batch_tokens=opened.generator.config.torch_batch_tokens,
            device=opened.device,
            before_batch=progress,
        )
