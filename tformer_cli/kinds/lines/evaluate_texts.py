"""Evaluating a language model: loss, perplexity and bits per byte of texts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tformer_cli.errors import ArtifactError, DataError, UsageError
from tformer_cli.kinds.texts import text_ids
from tformer_cli.quality.given import JSONL, TSV, ending_of
from tformer_cli.search.text_windows import scored_windows, text_scores
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import read_corpus
from tformer_cli.text.lines import given_lines
from tformer_cli.text.loading.encoded import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tformer_cli.kinds.masked import MaskedScores
    from tformer_cli.kinds.opening.encoder import OpenedEncoder
    from tformer_cli.kinds.opening.generator import OpenedGenerator
    from tformer_cli.metrics.significance import PairedDifference
    from tformer_cli.search.text_windows import TextScores
    from tformer_cli.text.lines import LineCounts


TextKind = Literal["lines", "stream"]
BLOCK = 128
"""Tokens of a stream that are drawn together: neighbors are not independent of each other."""


@dataclass(frozen=True, kw_only=True)
class TextEvaluation:
    """Scores of a text, and how it was read."""

    scores: TextScores
    kind: TextKind
    """Texts that were scored: each line, or all of them as one."""
    window: int
    stride: int
    memory: int = 0
    """Tokens before a window that the model remembered."""
    token_ids: tuple[tuple[int, ...], ...] = ()
    steps: tuple[tuple[float, ...], ...] = ()
    """ln p of those that were predicted, of each text."""
    sizes: tuple[int, ...] = ()
    """Bytes of each text; see `TextScores`."""

    @property
    def signature(self) -> str:
        remembered = f"|memory:{self.memory}" if self.memory else ""
        return f"text:{self.kind}|window:{self.window}|stride:{self.stride}{remembered}"

    def record(self) -> dict[str, Any]:
        scores = self.scores
        return {
            "tokens": scores.n_tokens,
            "bytes": scores.n_bytes,
            "loss": scores.loss,
            "perplexity": scores.perplexity,
            "bits_per_byte": scores.bits_per_byte,
            "signature": self.signature,
        }

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yields the name of each score, its value, and of what it is."""
        scores = self.scores
        yield "loss", f"{scores.loss:.4f}", f"nats per token of {scores.n_tokens:,}"
        yield "perplexity", f"{scores.perplexity:.2f}", "exp(loss)"
        yield "bits per byte", f"{scores.bits_per_byte:.4f}", f"of {scores.n_bytes:,} bytes"
        yield "signature", "", self.signature


def compare_evaluations(result: TextEvaluation, baseline: TextEvaluation) -> PairedDifference:
    """Compares two language models on the same text by paired bootstrap."""
    # Lines are drawn and compared by bits per byte, whatever the models' tokens are. A stream is
    # drawn in blocks of `BLOCK` tokens (Künsch 1989) and compared by loss; so both must have the
    # same tokens.
    from tformer_cli.metrics.significance import compare_losses

    has_ends = [len(one.steps[0]) - len(one.token_ids[0]) for one in (result, baseline)]
    if result.sizes != baseline.sizes or result.kind != baseline.kind:
        raise UsageError(
            "--baseline-model: only one of the two predicts where texts end; add --text-kind stream"
        )
    if result.kind == "lines":
        bits = [
            np.array([-sum(steps) / math.log(2.0) for steps in one.steps])
            for one in (baseline, result)
        ]
        sizes = np.array(result.sizes)
        return compare_losses(bits[0], bits[1][None], sizes, name="bits per byte")[0]
    if result.token_ids != baseline.token_ids or has_ends[0] != has_ends[1]:
        raise UsageError(
            "--baseline-model: has other tokens, so that blocks of the text cannot be paired; add "
            "--text-kind lines"
        )
    losses = [
        -np.array([value for text in one.steps for value in text]) for one in (baseline, result)
    ]
    starts = np.arange(0, len(losses[0]), BLOCK)
    sums = [np.add.reduceat(one, starts) for one in losses]
    sizes = np.diff([*starts, len(losses[0])])
    return compare_losses(sums[0], sums[1][None], sizes)[0]


def texts_in_field(
    name: str, field: str, split: str = "train", counts: LineCounts | None = None
) -> list[str]:
    """Reads the texts in a field of JSONL, of a dataset, or in a column of a TSV file."""
    ending = ending_of(name)
    if ending in JSONL:
        corpus = CorpusConfig(jsonl=name, text_field=field)
    elif ending in TSV:
        corpus = CorpusConfig(tsv=name, text_field=field)
    else:
        corpus = CorpusConfig(dataset=name, text_field=field, split=split)
    return [pair.target for pair in read_corpus(corpus, "", counts)]


def evaluate_texts(
    opened: OpenedGenerator,
    lines: Sequence[str],
    *,
    kind: TextKind | None = None,
    window: int = 0,
    stride: int = 0,
    progress: Callable[[], None] | None = None,
) -> TextEvaluation:
    """Scores lines of text, blank ones left out, or all of them as one text."""
    directory = opened.directory
    config = directory.config
    longest = config.max_positions
    window = window or longest
    stride = stride or window
    if not 2 <= window <= longest:
        raise UsageError(
            f"--window: must be 2 to {longest}, which the model takes, but is {window}"
        )
    if not 1 <= stride <= window:
        raise UsageError(f"--stride: must be 1 to --window = {window}, but is {stride}")
    if config.memory and stride != window:
        raise UsageError(
            f"--stride: MODEL remembers {config.memory} tokens before each window, and reads each "
            "token once; omit it"
        )
    lines = list(given_lines(lines))
    kind = kind or ("lines" if config.target_eos else "stream")
    texts = [joined(lines)] if kind == "stream" else [line for line in lines if line.strip()]
    encoded = directory.tokenizer.target.encode_phrases(texts)
    found = log_probabilities(opened, encoded, window, stride, progress)
    if not any(found):
        raise DataError("--text: has nothing to predict; give a text of two tokens or more")
    sizes = [len(text.encode("utf-8", "replace")) + config.target_eos for text in texts]
    return TextEvaluation(
        scores=text_scores(found, sum(sizes)),
        kind=kind,
        window=window,
        stride=stride,
        memory=config.memory,
        token_ids=tuple(map(tuple, encoded)),
        steps=tuple(map(tuple, found)),
        sizes=tuple(sizes),
    )


def log_probabilities(
    opened: OpenedGenerator,
    texts: Sequence[Sequence[int]],
    window: int,
    stride: int,
    progress: Callable[[], None] | None = None,
) -> list[list[float]]:
    """Computes log p of all tokens of texts, by the kernels if they can."""
    scorer = opened.generator.compiled_scorer()
    if scorer is not None:
        return scored_windows(
            scorer,
            texts,
            opened.directory.config,
            window=window,
            stride=stride,
            before_batch=progress or (lambda: None),
        )
    from tformer_cli.runtime import autocast, check_threads
    from tformer_cli.search.scoring import score_texts

    check_threads()
    with autocast(opened.device, "bfloat16" if opened.precision == "bfloat16" else "float32"):
        return score_texts(
            opened.directory.model,
            texts,
            window=window,
            stride=stride,
            batch_tokens=opened.generator.config.torch_batch_tokens,
            device=opened.device,
            before_batch=progress,
        )


@dataclass(frozen=True, kw_only=True)
class MaskedEvaluation:
    """Scores of hidden tokens, and how they were hidden."""

    scores: MaskedScores
    kind: TextKind
    """Texts that were read: each line, or blocks of all of them as one."""
    longest: int
    """Tokens of a text that were read at most."""
    share: float
    """Share of the tokens that was chosen."""

    @property
    def signature(self) -> str:
        return f"text:{self.kind}|window:{self.longest}|masked:{self.share:g}|draw:by text"

    def record(self) -> dict[str, Any]:
        scores = self.scores
        return {
            "tokens": scores.n_tokens,
            "loss": scores.loss,
            "perplexity": scores.perplexity,
            "accuracy": scores.accuracy,
            "signature": self.signature,
        }

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yields the name of each score, its value, and of what it is."""
        scores = self.scores
        yield "loss", f"{scores.loss:.4f}", f"nats per hidden token of {scores.n_tokens:,}"
        yield "perplexity", f"{scores.perplexity:.2f}", "exp(loss)"
        yield "accuracy", f"{scores.accuracy:.2f}", "of hidden tokens"
        yield "signature", "", self.signature


def evaluate_masked(
    opened: OpenedEncoder, lines: Iterable[str], kind: TextKind = "lines"
) -> MaskedEvaluation:
    import torch

    from tformer_cli.kinds.masked import masked_scores
    from tformer_cli.runtime import autocast
    from tformer_cli.text.masking import masking_of

    directory = opened.directory
    try:
        masking = masking_of(directory.tokenizer)
    except DataError as error:
        raise ArtifactError(f"{directory.path}: {error}") from None
    texts = text_ids(
        list(given_lines(lines)), directory.tokenizer, opened.longest, is_stream=kind == "stream"
    )
    if not texts:
        raise DataError("--text: has nothing to predict; give a text")
    device = torch.device(opened.place)
    with torch.inference_mode(), autocast(device, opened.precision):
        scores = masked_scores(directory.masked_model, texts, masking, device, lambda: None)
    return MaskedEvaluation(scores=scores, kind=kind, longest=opened.longest, share=masking.share)
