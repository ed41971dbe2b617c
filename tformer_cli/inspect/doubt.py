"""Doubt: the probability that a translation is wrong, from signals that a search has anyway.

`tformer calibrate` fits how the signals of `SIGNALS` become a probability, and stores that in the
model directory. Nothing here needs torch: log-probabilities and attention come with hypotheses.

Signals that need more searches or passes are not used: the source's share by ALTI+, the agreement
of samples, dropout (Fomicheva et al. 2020) and the entropy of whole distributions of tokens, which
the compiled search does not keep.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import accumulate, islice, pairwise
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tformer_cli.artifacts.doubt_file import read_calibration
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.inspect.alignment import spelled_words
from tformer_cli.metrics.calibration import logistic
from tformer_cli.search.translator import Doubt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from tformer_cli.artifacts.doubt_file import Calibration
    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.inspect.alignment import Numbers
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.hypothesis import CrossHead
    from tformer_cli.search.translator import TranslatedText, Translation, Translator
    from tformer_cli.text.tokenizer import TokenizerSide

IGNORED = 0.2
"""Attention below which a source token counts as ignored (Berard et al. 2019)."""
NEAREST, WINDOW = 4, 0.1
"""Wass-to-Data averages the 4 nearest of the distributions whose translations have as many tokens,
to 10 % (Guerreiro et al. 2023, section 4.2)."""
GRAM = 4
"""Tokens of a run that is counted, as by Raunak et al. 2021."""
FARTHEST = 8.0
DECIMALS = 4


@dataclass(frozen=True, kw_only=True)
class Part:
    """A sentence with its translation, as the search found it."""

    steps: Numbers
    """(T + 1) log p of each token and of the end of sentence."""
    attention: Numbers
    """(T + 1, S) the weights of the heads, the source's end of sentence among S."""
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]

    @property
    def mass(self) -> Numbers:
        """(S) the share of all attention that each source token gets."""
        total: Numbers = self.attention.sum(axis=0)
        return total / max(float(total.sum()), 1e-12)

    @property
    def log_ratio(self) -> float:
        return log((len(self.target_ids) + 1) / (len(self.source_ids) + 1))


class Usual(NamedTuple):
    """Properties of right translations of the model, and the words that it knows."""

    log_ratio: float
    masses: Masses
    seen_words: AbstractSet[str] | None


class Masses:
    """Distributions of attention over the sources of right translations."""

    def __init__(self, masses: Sequence[Sequence[float]], lengths: Sequence[int]) -> None:
        self._lengths = np.array(lengths, np.float64)
        self._width = max(map(len, masses), default=0)
        self._sums = np.array([cumulate_mass(mass, self._width) for mass in masses])

    def distance(self, mass: Numbers, length: int) -> float:
        """Returns Wass-to-Data of a distribution and the number of its translation's tokens.

        W₁ on the line has the closed form Σ_j |F(j) - G(j)|, sources padded with zeros to the same
        length. Here it is divided by the length, so that long sentences are not far from all.
        """
        if not len(self._lengths):
            return 0.0
        gaps = np.abs(self._lengths - length)
        # Where too few are as long the nearest in length: a rare length is no sign of an error
        few = min(NEAREST, len(gaps))
        limit = max(WINDOW * length, float(np.partition(gaps, few - 1)[few - 1]))
        near = self._sums[gaps <= limit]
        width = max(self._width, len(mass))
        own = cumulate_mass(mass, width)
        # Behind its end each of them is 1
        distances = np.abs(near - own[: self._width]).sum(axis=1) + (1 - own[self._width :]).sum()
        return float(np.partition(distances, few - 1)[:few].mean()) / len(mass)


def cumulate_mass(mass: Sequence[float] | Numbers, width: int) -> Numbers:
    """(width) the sums of a distribution up to each place."""
    sums = np.ones(width)
    sums[: len(mass)] = np.cumsum(mass)
    return sums


def wass_to_unif(part: Part, _: Usual) -> float:
    mass = part.mass
    # The cost of moving is 1 wherever to, so W₁ is the total variation distance
    return float(np.abs(mass - 1 / len(mass)).sum()) / 2


def wass_to_data(part: Part, usual: Usual) -> float:
    return usual.masses.distance(part.mass, len(part.target_ids))


def ignored_share(part: Part, _: Usual) -> float:
    on_tokens = part.attention[:, : len(part.source_ids)].sum(axis=0)
    return float((on_tokens < IGNORED).mean())


def attention_entropy(part: Part, _: Usual) -> float:
    rows = np.maximum(part.attention, 1e-12)
    return float(-(rows * np.log(rows)).sum(axis=1).mean())


def unseen(part: Part, usual: Usual) -> float:
    if not usual.seen_words:  # of an import nobody knows
        return 0.0
    # Tables of languages come along, which only models that know their training's words need
    from tformer_cli.text.languages import words_in

    words = words_in(" ".join(part.source_words))
    return sum(word.casefold() not in usual.seen_words for word in words) / max(len(words), 1)


def excess_repeats(part: Part, _: Usual) -> float:
    repeats, in_source = (
        max(Counter(zip(*(ids[i:] for i in range(GRAM)), strict=False)).values(), default=0)
        for ids in (part.target_ids, part.source_ids)
    )
    return float(max(repeats - max(in_source, 1), 0))


def copied_share(part: Part, _: Usual) -> float:
    # Numbers and marks stay the same in good translations, too
    words = [word for word in part.target_words if any(map(str.isalpha, word))]
    return sum(word in part.source_words for word in words) / max(len(words), 1)


class Signal(NamedTuple):
    """A signal of doubt."""

    name: str
    of: Callable[[Part, Usual], float]
    unit: str
    source: str


SIGNALS = (
    Signal("probability", lambda part, _: float(part.steps.mean()), "nats a token",
           "Guerreiro et al. 2023 (Seq-Logprob)"),
    Signal("lowest", lambda part, _: float(part.steps.min()), "nats", "Fomicheva et al. 2020"),
    Signal("spread", lambda part, _: float(part.steps.std()), "nats",
           "Fomicheva et al. 2020 (Sent-Std)"),
    Signal("wass-to-unif", wass_to_unif, "0 to 1", "Guerreiro et al. 2023"),
    Signal("wass-to-data", wass_to_data, "tokens a token", "Guerreiro et al. 2023"),
    Signal("ignored", ignored_share, "share of source tokens", "Berard et al. 2019"),
    Signal("entropy", attention_entropy, "nats a token", "Fomicheva et al. 2020 (Att-Ent)"),
    Signal("length", lambda part, usual: abs(part.log_ratio - usual.log_ratio), "log ratio",
           "Gale & Church 1993"),
    Signal("unseen", unseen, "share of source words", "Koehn & Knowles 2017"),
    Signal("pieces", lambda part, _: log(len(part.source_ids) / max(len(part.source_words), 1)),
           "log tokens a word", "Koehn & Knowles 2017"),
    Signal("repeated", excess_repeats, "runs of 4", "Raunak et al. 2021 (TNG)"),
    Signal("copied", copied_share, "share of target words", "Ott et al. 2018"),
)  # fmt: skip
"""The signals; each reads one `Part`, and names its unit and its source."""


def signals_of(part: Part, usual: Usual) -> list[float]:
    return [signal.of(part, usual) for signal in SIGNALS]


def parts_of(
    hypothesis: TranslatedText, translation: Translation, target: TokenizerSide
) -> Iterator[Part]:
    """Yields the parts of a translation; of a blank line none."""
    if not translation.n_parts:
        return
    if len(hypothesis.attention) != translation.n_parts:
        raise UsageError.of(
            "{doubt}: needs attention, which several models lack; translate with one model"
        )
    texts = translation.parts or (translation.source,)
    widths = [attention.weights.shape[1] for attention in hypothesis.attention]
    # All parts end with the end of sentence, or none does
    n_eos = (sum(widths) - len(translation.source_ids)) // len(widths)
    reads = pairwise(accumulate((width - n_eos for width in widths), initial=0))
    writes = pairwise(accumulate(hypothesis.part_lengths, initial=0))
    spans = zip(texts, hypothesis.attention, reads, writes, strict=True)
    steps = np.array(hypothesis.token_log_probabilities)
    for number, (text, attention, (a, b), (c, d)) in enumerate(spans):
        ids = hypothesis.token_ids[c:d]
        spelled = b"".join(target.piece_bytes[token] for token in ids)
        yield Part(
            # Each part before has an end of sentence, too
            steps=steps[c + number : d + number + 1],
            attention=attention.weights.astype(np.float64),
            source_ids=translation.source_ids[a:b],
            target_ids=ids,
            source_words=tuple(text.split()),
            target_words=tuple(spelled.decode("utf-8", "replace").split()),
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
        from tformer_cli.artifacts.shortlist_file import load_seen_words

        self._fitted = calibration = calibration_of(directory.path, directory.info.step)
        self._target = directory.tokenizer.target
        masses = Masses(calibration.masses, calibration.lengths)
        self._usual = Usual(calibration.log_ratio, masses, load_seen_words(directory.path))
        self.heads = calibration.heads

    def check_aligned(self, heads: Sequence[CrossHead], who: str) -> None:
        """Refuses a request for other heads: a search records only one choice."""
        if tuple(heads) != self.heads:
            raise UsageError.of(
                "{doubt}: was calibrated with other heads than {}; run `tformer calibrate` "
                "again, or omit {doubt}",
                who,
            )

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

    def add_doubts(self, translations: Sequence[Translation]) -> list[Translation]:
        """Adds its doubt to each hypothesis and changes nothing else.

        Their searches must have recorded `heads`.
        """
        pairs = [(line, text) for line in translations for text in line.hypotheses]
        parts = [list(parts_of(text, line, self._target)) for line, text in pairs]
        rows = [signals_of(part, self._usual) for line_parts in parts for part in line_parts]
        left = iter(np.round(probabilities(self._fitted, rows), DECIMALS).tolist() if rows else ())
        rated = []
        for (line, text), line_parts in zip(pairs, parts, strict=True):
            sentences = tuple(islice(left, len(line_parts)))
            words = tuple(word_probabilities(text, line, self._target))
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

    Squares, because much of some signals is as odd as little: a model that copies is very sure.
    """
    # A single odd signal, such as a word of 500 tokens, must not outweigh all others
    scaled = np.clip(
        (np.asarray(rows) - np.asarray(means)) / np.asarray(deviations), -FARTHEST, FARTHEST
    )
    return np.concatenate([scaled, scaled**2], axis=1)


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
