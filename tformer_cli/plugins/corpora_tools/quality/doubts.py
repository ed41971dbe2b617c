"""Doubts about a training corpus that can be read but looks odd, a sentence each."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from tformer_cli.kinds.kind import WITHOUT_VALIDATION
from tformer_cli.plugins.corpora_tools.quality.checks import (
    CHECKS,
    DROPPING,
    findings_of,
    is_same_text,
)
from tformer_cli.plugins.corpora_tools.quality.facts import PAIRS, estimate_facts
from tformer_cli.text.config import CorpusConfig, DataConfig
from tformer_cli.text.corpora import SentencePair, corpus_name, read_records, text_files
from tformer_cli.text.languages import FUNCTION_WORDS, SCRIPTS, looks_swapped
from tformer_cli.wording import is_blank

MOST_PAIRS = 1000
"""Pairs of each corpus that are examined, from its beginning."""
# Share of the pairs in which a check must find something to be worth a doubt.
MANY = 0.1
# Checks of pairs whose doubts here are about a corpus as a whole.
WHOLE_CORPUS = {"identical", "copied", "swapped", "script"}
# Pairs that a corpus must have for shares of them to mean something.
FEWEST_PAIRS = 8
COLUMN_NAMES = """
    source src source_text input original sentence sentence1 sentence2 text target tgt trg
    target_text output translation reference english german french spanish italian portuguese dutch
    russian chinese japanese greek polish czech swedish danish norwegian finnish turkish arabic
    hebrew hindi korean romanian hungarian
"""
"""Names of columns in the first line of a table, besides codes of languages."""


def doubts(data: DataConfig) -> Iterator[str]:
    """Yields doubts about the training corpora, and the lack of a validation corpus."""
    if not data.valid:
        yield WITHOUT_VALIDATION
    for corpus in data.train:
        # only files: datasets have names for their columns
        if text_files(corpus):
            yield from doubts_about(corpus, data)


def doubts_about(corpus: CorpusConfig, data: DataConfig) -> Iterator[str]:
    records = islice(read_records(corpus, data.directory, with_faults=True), MOST_PAIRS)
    pairs = [record.pair for record in records if not record.fault]
    for doubt in _doubts_about_pairs(pairs, corpus, data):
        yield f"{corpus_name(corpus)}: {doubt}"


def share_of_equal(pairs: Sequence[tuple[str, str]]) -> float:
    """The share of pairs whose sides are the same text, blank ones aside; 0 of too few."""
    filled = [pair for pair in pairs if not any(map(is_blank, pair))]
    if len(filled) < FEWEST_PAIRS:
        return 0.0
    return sum(is_same_text(*pair) for pair in filled) / len(filled)


def _doubts_about_pairs(
    pairs: Sequence[SentencePair], corpus: CorpusConfig, data: DataConfig
) -> Iterator[str]:
    if corpus.tsv and pairs and _is_header(pairs[0]):
        yield (
            f'its first line ("{pairs[0].source}", "{pairs[0].target}") looks like a header '
            "and would be trained on; remove it (tail -n +2)"
        )
    if corpus.tsv and len(pairs) >= FEWEST_PAIRS:
        n_quoted = sum(any(len(s) > 1 and s[0] == s[-1] == '"' for s in pair) for pair in pairs)
        if n_quoted > 0.5 * len(pairs):
            yield (
                'most lines have a text in quotes ("…"), as in CSV files, and the quotes would be '
                'trained on; remove them, or give a CSV file as { dataset = "FILE" }'
            )
    # one doubt is enough: checks of language would find copies and swapped sides again
    share = share_of_equal(pairs)
    if share > 0.5:
        yield (
            f"source and target are the same in {share:.0%} of the first {len(pairs):,} pairs; "
            "check that both sides are named right"
        )
    elif looks_swapped(pairs, data.source_language, data.target_language):
        yield (
            f'the source looks like "{data.target_language}" and the target like '
            f'"{data.source_language}"; swap them, or data.source_language and '
            "data.target_language"
        )
    else:
        yield from _doubts_by_check(pairs, (data.source_language, data.target_language))


def _doubts_by_check(pairs: Sequence[SentencePair], languages: tuple[str, str]) -> Iterator[str]:
    if len(pairs) < FEWEST_PAIRS:
        return
    facts = estimate_facts(pairs, languages)
    wanted = DROPPING - WHOLE_CORPUS
    of_copies = wanted - {"language"}  # one of their sides is in the other's
    counts = Counter(
        name
        for pair in pairs
        for name, _ in findings_of(pair, facts, of_copies if is_same_text(*pair) else wanted)
    )
    for name, n_pairs in counts.items():
        if n_pairs > MANY * len(pairs):
            yield (
                f"{CHECKS[name].means(PAIRS)} in {n_pairs / len(pairs):.0%} of the first "
                f"{len(pairs):,} pairs ({name}); `tformer data check` shows them"
            )


def _is_header(first: SentencePair) -> bool:
    """True if both cells are common names of columns, and differ."""
    source, target = (cell.strip().strip('"').lower() for cell in first)
    names, languages = COLUMN_NAMES.split(), FUNCTION_WORDS.keys() | SCRIPTS.keys()
    return source != target and all(
        cell in names or cell.partition("-")[0].partition("_")[0] in languages
        for cell in (source, target)
    )
