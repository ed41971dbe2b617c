"""Doubt: the probability that a translation is wrong, from what every search has anyway.

`tformer calibrate` fits how the signals of `SIGNALS` become a probability, and stores that in the
model directory. They are functions of the log-probabilities of the chosen tokens and of the words
on both sides, so that doubt costs a few microseconds a line, and needs no torch.

Signals that were measured and add nothing to these, or too little for what they cost, are listed
in tests/benchmarks/README.md: attention, the n-best list, entropies of whole distributions of
tokens, and dropout (Fomicheva et al. 2020).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, islice, pairwise
from math import exp, log, log1p
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tformer_cli.artifacts.doubt_file import read_calibration
from tformer_cli.errors import ArtifactError
from tformer_cli.inspect.alignment import spelled_words
from tformer_cli.metrics.calibration import logistic
from tformer_cli.search.translator import Doubt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tformer_cli.artifacts.doubt_file import Calibration
    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.inspect.alignment import Numbers
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.translator import TranslatedText, Translation, Translator
    from tformer_cli.text.tokenizer import TokenizerSide

FARTHEST = 8.0
DECIMALS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A sentence with its translation, as the search found it."""

    steps: tuple[float, ...]
    """(T + 1) log p of each token and of the end of sentence."""
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]

    @property
    def log_ratio(self) -> float:
        return log((len(self.target_ids) + 1) / (len(self.source_ids) + 1))


def token_uncertainty(part: Part) -> float:
    total = 0.0
    for step in part.steps:
        p = exp(step)
        if 0.0 < p < 1.0:  # else its entropy is 0
            total -= p * step + (1.0 - p) * log1p(-p)
    return total / len(part.steps)


def pieces_per_word(part: Part) -> float:
    return log(max(len(part.source_ids), 1) / max(len(part.source_words), 1))


def name_share(part: Part) -> float:
    words = part.source_words
    return sum(word[0].isupper() for word in words[1:]) / max(len(words), 1)


def copied_share(part: Part) -> float:
    # Numbers and marks stay the same in good translations, too
    words = [word for word in part.target_words if any(map(str.isalpha, word))]
    return sum(word in part.source_words for word in words) / max(len(words), 1)


def repeated_share(part: Part) -> float:
    words = part.target_words
    return 1 - len(set(words)) / len(words) if words else 0.0


def word_length(part: Part) -> float:
    return sum(map(len, part.target_words)) / max(len(part.target_words), 1)


class Signal(NamedTuple):
    """A signal of doubt."""

    name: str
    of: Callable[[Part, float], float]
    """Computes it from a part and the mean log ratio of the lengths of right translations."""
    unit: str
    source: str
    has_square: bool = False
    """True if much of it is as odd as little: its square is weighed, too."""


SIGNALS = (
    Signal("probability", lambda part, _: sum(part.steps) / len(part.steps), "nats a token",
           "Guerreiro et al. 2023 (Seq-Logprob)"),
    Signal("uncertainty", lambda part, _: token_uncertainty(part), "nats a token",
           "Fomicheva et al. 2020 (Softmax-Ent), of the chosen token against all others"),
    Signal("tokens", lambda part, _: log(len(part.steps)), "log tokens", "Specia et al. 2013"),
    Signal("length", lambda part, ratio: abs(part.log_ratio - ratio), "log ratio",
           "Gale & Church 1993", has_square=True),
    Signal("pieces", lambda part, _: pieces_per_word(part), "log tokens a word",
           "Koehn & Knowles 2017", has_square=True),
    Signal("names", lambda part, _: name_share(part), "share of source words",
           "Koehn & Knowles 2017"),
    Signal("copied", lambda part, _: copied_share(part), "share of target words",
           "Ott et al. 2018", has_square=True),
    Signal("repeated", lambda part, _: repeated_share(part), "share of target words",
           "Specia et al. 2013"),
    Signal("word-length", lambda part, _: word_length(part), "characters", "Specia et al. 2013"),
)  # fmt: skip
"""The signals; each reads one `Part`, and names its unit and its source."""
IS_TERM = np.array([True] * len(SIGNALS) + [signal.has_square for signal in SIGNALS])
"""(2 D) the signals and the squares that are weighed."""


def signals_of(part: Part, log_ratio: float) -> list[float]:
    """Returns the D signals of a part, by the mean log ratio of right translations."""
    return [signal.of(part, log_ratio) for signal in SIGNALS]


def parts_of(
    hypothesis: TranslatedText, translation: Translation, target: TokenizerSide
) -> Iterator[Part]:
    """Yields the parts of a translation; of a blank line none."""
    if not translation.n_parts:
        return
    ids = hypothesis.token_ids
    spans = list(pairwise(accumulate(hypothesis.part_lengths, initial=0)))
    sources: Sequence[str] = translation.parts
    sizes: Sequence[int] = translation.source_part_lengths
    if translation.n_parts == 1:
        sources, sizes, texts = (
            [translation.source],
            [len(translation.source_ids)],
            [hypothesis.text],
        )
    else:
        texts = target.decode_batch([ids[start:end] for start, end in spans])
    reads = pairwise(accumulate(sizes, initial=0))
    rows = zip(sources, texts, reads, spans, strict=True)
    for number, (source, text, (first, last), (start, end)) in enumerate(rows):
        yield Part(
            # Each part before has an end of sentence, too
            steps=hypothesis.token_log_probabilities[start + number : end + number + 1],
            source_ids=translation.source_ids[first:last],
            target_ids=ids[start:end],
            source_words=tuple(source.split()),
            target_words=tuple(text.split()),
        )


def calibration_of(path: Path, step: int) -> Calibration:
    """Reads the calibration of a model, if it is by these signals and at this step."""
    calibration = read_calibration(path)
    advice = f"run `tformer calibrate {path} --source FILE --reference FILE`"
    if calibration is None:
        raise ArtifactError(f"{path}: doubt is not calibrated; {advice} first")
    if calibration.signals != tuple(signal.name for signal in SIGNALS):
        raise ArtifactError(f"{path}: was calibrated with other signals; {advice} again")
    if calibration.step != step:
        raise ArtifactError(
            f"{path}: was calibrated at step {calibration.step:,}, and is now at step {step:,}; "
            f"{advice} again"
        )
    return calibration


def search_of(opened: Opened, translator: Translator) -> dict[str, Any]:
    """Names what a calibration is for."""
    config = translator.config
    return {
        "beam_size": config.beam_size,
        "length_penalty": config.length_penalty,
        "precision": opened.precision,
        "sampling": config.sampling,
        "shortlist": translator.has_shortlist,
    }


class Doubter:
    """Measures the doubt of translations by a calibrated model."""

    def __init__(self, directory: ModelDirectory) -> None:
        self._fitted = calibration_of(directory.path, directory.info.step)
        self._target = directory.tokenizer.target

    def difference(self, opened: Opened, translator: Translator) -> str:
        """Describes a search that differs from the calibration's, if that matters; else empty.

        Beam size, length penalty, int8 and a shortlist move the calibration error by a point or
        less. Sampled texts are far less probable than the best ones.
        """
        now = search_of(opened, translator)["sampling"]
        before = self._fitted.search.get("sampling", now)
        if before == now:
            return ""
        both = [f"with{'' if is_sampled else 'out'} sampling" for is_sampled in (before, now)]
        return (
            f"doubt was calibrated {both[0]} but the search is {both[1]}, so its probabilities do "
            "not apply; run `tformer calibrate` with the same options"
        )

    def add_doubts(
        self, translations: Sequence[Translation], *, has_words: bool = True
    ) -> list[Translation]:
        """Adds its doubt to each hypothesis, its words' with `has_words`; changes nothing else."""
        pairs = [(line, text) for line in translations for text in line.hypotheses]
        parts = [list(parts_of(text, line, self._target)) for line, text in pairs]
        ratio = self._fitted.log_ratio
        rows = [signals_of(part, ratio) for line_parts in parts for part in line_parts]
        left = iter(np.round(probabilities(self._fitted, rows), DECIMALS).tolist() if rows else ())
        rated = []
        for (line, text), line_parts in zip(pairs, parts, strict=True):
            sentences = tuple(islice(left, len(line_parts)))
            words = tuple(word_probabilities(text, line, self._target)) if has_words else None
            rated.append(replace(text, doubt=Doubt(max(sentences, default=0.0), sentences, words)))
        texts = iter(rated)
        return [
            replace(line, hypotheses=tuple(islice(texts, len(line.hypotheses))))
            for line in translations
        ]


def probabilities(calibration: Calibration, rows: Sequence[Sequence[float]] | Numbers) -> Numbers:
    """(N) P(wrong) of (N, D) signals."""
    terms = terms_of(rows, calibration.means, calibration.deviations)
    # Row by row: a product of matrices may round a line otherwise among other lines
    return logistic((terms * np.array(calibration.weights)).sum(axis=1) + calibration.intercept)


def terms_of(
    rows: Sequence[Sequence[float]] | Numbers,
    means: Sequence[float] | Numbers,
    deviations: Sequence[float] | Numbers,
) -> Numbers:
    """(N, 2 D) signals in deviations from their means, at most `FARTHEST`, and their squares.

    The squares of most signals have the weight 0.
    """
    # A single odd signal, such as a word of 500 tokens, must not outweigh all others
    scaled = np.clip(
        (np.asarray(rows) - np.asarray(means)) / np.asarray(deviations), -FARTHEST, FARTHEST
    )
    terms: Numbers = np.concatenate([scaled, scaled**2], axis=1) * IS_TERM
    return terms


def word_probabilities(
    hypothesis: TranslatedText, translation: Translation, target: TokenizerSide
) -> list[tuple[str, float]]:
    """Returns each word of a translation with its probability: the product of its tokens'."""
    words: list[tuple[str, float]] = []
    ends = list(accumulate(hypothesis.part_lengths, initial=0)) if translation.n_parts else [0]
    for number, (start, end) in enumerate(pairwise(ends)):
        spelled = spelled_words(target, hypothesis.token_ids[start:end])
        sums = np.zeros(len(spelled.texts))
        steps = hypothesis.token_log_probabilities[start + number : end + number]
        for word, step in zip(spelled.of_token, steps, strict=True):
            if word is not None:
                sums[word] += step
        rounded = np.round(np.exp(sums), DECIMALS).tolist()
        words += zip(spelled.texts, rounded, strict=True)
    return words
