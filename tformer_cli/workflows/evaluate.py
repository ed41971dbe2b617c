"""Scoring translations, or a model by its translations and by its loss on the references."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

import numpy as np
import torch
from torch.nn import functional

from tformer_cli.data.batching import collate, plan_batches
from tformer_cli.data.given_lines import check_lines, given_lines
from tformer_cli.data.lines import LineCounts, read_lines
from tformer_cli.data.tokenizer import PAD_ID
from tformer_cli.evaluation.scores import Score, bleu, check_counts, chrf, ter
from tformer_cli.model.runtime import Precision, autocast
from tformer_cli.workflows.open_translator import Opened, open_translator
from tformer_cli.workflows.translate import TranslationCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.workflows.translation_options import TranslatorOptions

TOKENS_PER_BATCH = 4096
LARGEST_EXPONENT = 700.0


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores, with the hypotheses they were computed from."""

    scores: tuple[Score, ...]
    """BLEU, chrF2 and TER."""
    hypotheses: tuple[str, ...]
    """Scored texts."""
    loss: float | None = None
    """With a model: mean -ln p of the tokens of the first reference, ends of sentence included."""

    @property
    def perplexity(self) -> float | None:
        """exp(loss)."""
        return None if self.loss is None else math.exp(min(self.loss, LARGEST_EXPONENT))


def score_hypotheses(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Evaluation:
    """Scores translations against one or several references, raw and detokenized.

    Raises:
        DataError: if they differ in the number of lines.
    """
    _check_texts(references, hypotheses=hypotheses)
    scores = (
        bleu(hypotheses, references, lowercase=lowercase, tokenize=tokenize),
        chrf(hypotheses, references, lowercase=lowercase),
        ter(hypotheses, references, lowercase=lowercase),
    )
    return Evaluation(scores=scores, hypotheses=tuple(hypotheses))


def evaluate_model(
    model: Path | str | ModelDirectory | Opened,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
    counts: TranslationCounts | None = None,
    progress: Callable[[int], None] | None = None,
    **options: Unpack[TranslatorOptions],
) -> Evaluation:
    """Translates the sources, scores the result and measures the loss of the first reference.

    Args:
        model: a model directory, its path, or an opened model of `open_translator`.
        sources: source sentences.
        references: one or several streams of reference translations.
        lowercase: score in lower case.
        tokenize: sacreBLEU's tokenizer for BLEU.
        counts: counts every translation.
        progress: called with the number of lines translated.
        **options: of `open_translator`.

    Raises:
        DataError: if the texts differ in the number of lines.
    """
    _check_texts(references, sources=sources)
    names = [("the source", len(sources))]
    check_counts([*names, *((f"reference {i}", len(r)) for i, r in enumerate(references, 1))])
    opened = model if isinstance(model, Opened) else open_translator(model, **options)
    counts = counts if counts is not None else TranslationCounts()
    hypotheses = []
    for translation in opened.translator.stream(sources):
        counts.add(translation)
        hypotheses.append(translation.text)
        if progress is not None:
            progress(counts.lines)
    scored = score_hypotheses(hypotheses, references, lowercase=lowercase, tokenize=tokenize)
    loss = reference_loss(opened, sources, references[0])
    return Evaluation(scores=scored.scores, hypotheses=scored.hypotheses, loss=loss)


def _check_texts(references: Sequence[Sequence[str]], **texts: Sequence[str]) -> None:
    """Checks that texts are lists of strings, and references lists of such lists.

    Raises:
        TypeError: if they are not.
    """
    check_lines(references, "references")
    streams = {f"references[{number}]": stream for number, stream in enumerate(references)}
    for name, lines in (texts | streams).items():
        for _ in given_lines(lines, name):
            pass


@torch.inference_mode()
def reference_loss(opened: Opened, sources: Sequence[str], references: Sequence[str]) -> float:
    """Computes the mean -ln p of the references' tokens, each predicted from those before it.

    Every token counts once, the end of each sentence included; nothing is smoothed. Texts longer
    than the model takes are cut off.
    """
    model, tokenizer = opened.directory.model, opened.directory.tokenizer
    longest = model.config.max_positions - 1
    source_ids = [ids[:longest] for ids in tokenizer.encode_batch(sources)]
    target_ids = [ids[:longest] for ids in tokenizer.encode_batch(references)]
    lengths = [np.array([len(ids) for ids in side]) for side in (source_ids, target_ids)]
    total, n_tokens = 0.0, 0
    for indices in plan_batches(lengths[0], lengths[1], TOKENS_PER_BATCH, 0, 0):
        batch = collate([source_ids[i] for i in indices], [target_ids[i] for i in indices])
        tensors = (batch.source, batch.source_mask, batch.target_input)
        # the loss is always the own model's, which knows no int8
        own: Precision = "bfloat16" if opened.precision == "bfloat16" else "float32"
        with autocast(opened.device, own):
            logits = model(*(tensor.to(opened.device) for tensor in tensors))
        targets = batch.target_output.to(opened.device)
        total += functional.cross_entropy(
            logits.float().flatten(0, 1), targets.flatten(), ignore_index=PAD_ID, reduction="sum"
        ).item()
        n_tokens += batch.n_target_tokens
    return total / max(1, n_tokens)


def read_texts(paths: Sequence[Path], counts: LineCounts | None = None) -> list[list[str]]:
    """Reads files that belong together line by line.

    Raises:
        DataError: if a file cannot be read, or naming two files with their numbers of lines.
    """
    texts = [list(read_lines(path, counts)) for path in paths]
    check_counts([(str(path), len(text)) for path, text in zip(paths, texts, strict=True)])
    return texts
