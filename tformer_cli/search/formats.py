"""Formats of translations, and JSONL input.

=====  ==========================================================================================
text   the best translation, line by line
tsv    index, source, translation, score; a line a hypothesis, tabs and line ends become spaces
jsonl  an object for a line; with several hypotheses they are listed in it
moses  ``index ||| translation ||| LogProbability= … Length= … ||| score``, a line a hypothesis
=====  ==========================================================================================

An alignment is one more column of tsv, one more field of moses, and "alignment" in jsonl. The doubt
of a calibrated model is a column of tsv before it, and "doubt" in jsonl.

Besides text and score, "jsonl" has on request the tokens' scores of a hypothesis and warning signs:

=============  ==================================================================================
unfinished     the length limit ended it
repetition     a run of 1 to 8 tokens stands at least 4 times in a row, 8 tokens or more in all,
               and no such run is in the source
length         it has over 2.5 times the source's tokens and 10 more, or under a fifth of them
improbable     its tokens have a mean log-probability below -2.5, a perplexity above 12
dropped        it has fewer sentences than the source, and is shorter by more than half of the share
               that they had in it
unseen         most of the source's words were never seen in training
doubt          with the doubt: it is wrong at least as probably as not
=============  ==================================================================================

"length" and "improbable" are signs of a hallucination. All are cheap guesses to sort output by, no
judgment; what is usual differs from model to model.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tformer_cli.errors import DataError
from tformer_cli.search.translator import TranslatedText, Translation
from tformer_cli.wording import is_blank

OutputFormat = Literal["text", "tsv", "jsonl", "moses"]
Alignment = str | Sequence[Sequence[float]]
"""Links as Pharaoh text, or the weights of each target word's source words and end of sentence."""
TSV_ENDS = str.maketrans("\t\n\r", "   ")
"""Characters that end a cell or a line of TSV; each becomes a space in a text."""
LONGEST_RUN, LEAST_REPEATS, LEAST_REPEATED = 8, 4, 8
LARGEST_RATIO, LARGEST_EXTRA, SMALLEST_RATIO = 2.5, 10, 0.2
LEAST_MEAN = -2.5


class Details(NamedTuple):
    """Details of every hypothesis beyond its text and score."""

    token_scores: bool = False
    """Its token ids with their log-probabilities; the end of sentence comes last."""
    flags: bool = False
    """A list of warning signs, empty for most."""

    def of(self, hypothesis: TranslatedText, translation: Translation) -> dict[str, Any]:
        """Returns the selected details as fields of a JSON object."""
        fields: dict[str, Any] = {}
        if self.token_scores:
            fields["token_ids"] = list(hypothesis.token_ids)
            fields["token_log_probabilities"] = list(hypothesis.token_log_probabilities)
        if self.flags:
            fields["flags"] = flags_of(hypothesis, translation)
        if hypothesis.doubt is not None:
            fields["doubt"] = hypothesis.doubt.probability
            if hypothesis.doubt.words is not None:
                fields["word_probabilities"] = hypothesis.doubt.words
        return fields


NO_DETAILS = Details()
INPUT_FIELDS = "input_fields"
"""Field that keeps input fields whose names are also ours."""
OUR_FIELDS = frozenset(
    {
        *("index", "translation", "score", "log_probability", "hypotheses", "alignment"),
        *("token_ids", "token_log_probabilities", "flags", "doubt", "word_probabilities"),
        *("parts", "unsatisfied", "truncated", INPUT_FIELDS),
    }
)
"""Names that `_record` gives to results, whatever is asked for; "source" is the input's, too."""


def json_line(record: Mapping[str, Any]) -> str:
    """Writes an object as a line of JSON, lone surrogates as the escapes that they were."""
    text = json.dumps(record, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()


def own_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of an input that pass through: none stands where a result of ours may."""
    own = {name: value for name, value in record.items() if name not in OUR_FIELDS}
    ours = {name: value for name, value in record.items() if name in OUR_FIELDS}
    return {**own, INPUT_FIELDS: ours} if ours else own


def format_lines(
    translation: Translation,
    output_format: OutputFormat,
    *,
    lists_hypotheses: bool = False,
    details: Details = NO_DETAILS,
    passed_through: Mapping[str, Any] | None = None,
    alignments: Sequence[Alignment] | None = None,
) -> list[str]:
    """Writes a translation as lines, without line ends."""
    if output_format == "text":
        return [translation.text]
    if output_format == "jsonl":
        ours = _record(translation, lists_hypotheses, details, alignments)
        return [json_line({**(passed_through or {}), **ours})]
    line_of, separator = (_tsv_line, "\t") if output_format == "tsv" else (_moses_line, " ||| ")
    lines = [line_of(translation, hypothesis) for hypothesis in translation.hypotheses]
    if alignments is None:
        return lines
    return [
        line + separator + _alignment_text(alignment)
        for line, alignment in zip(lines, alignments, strict=True)
    ]


def read_records(lines: Iterable[str], name: str, first_index: int = 0) -> Iterator[dict[str, Any]]:
    """Reads JSONL input: an object a line with the text under "source".

    A blank line is a blank source, so that lines still correspond.
    """
    for number, line in enumerate(lines, first_index + 1):
        where = f"{name}, line {number}"
        record = {"source": ""} if is_blank(line) else read_record(line, where)
        if "source" not in record:
            raise DataError(f'{where}: has no text under "source"; add that key')
        if not isinstance(source := record["source"], str):
            shown = json.dumps(source)[:40]
            raise DataError(f'{where}: "source" is {shown}, not text; write a string')
        yield record


def read_record(line: str, where: str) -> dict[str, Any]:
    """Reads a line of JSONL, an object that can be written again with nothing lost."""
    try:
        # A byte order mark may precede the first line, and json refuses it
        record = _DECODER.decode(line.removeprefix("\ufeff"))
    except (json.JSONDecodeError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{where}: is not JSON ({reason}); write one object per line") from None
    # From the hooks below: json would read this, but not write the same again
    except ValueError as error:
        raise DataError(
            f"{where}: cannot be written unchanged ({error}); correct the line"
        ) from None
    if not isinstance(record, dict):
        raise DataError(f"{where}: is not a JSON object; write one object per line")
    return record


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # it would be written as Infinity or NaN, which are not JSON
        raise ValueError(f"{text} is not a finite number")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # json keeps the last of equal keys, so the others would be lost without a word
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'an object has the key "{twice}" twice')
    return record


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)


def _alignment_text(alignment: Alignment) -> str:
    """Writes an alignment as text: a target word's weights between commas, words between spaces."""
    if isinstance(alignment, str):
        return alignment
    return " ".join(",".join(f"{weight:g}" for weight in row) for row in alignment)


def _record(
    translation: Translation,
    lists_hypotheses: bool,
    details: Details,
    alignments: Sequence[Alignment] | None,
) -> dict[str, Any]:
    best = translation.hypotheses[0]
    record: dict[str, Any] = {
        "index": translation.index,
        "source": translation.source,
        "translation": best.text,
        "score": best.score,
        "log_probability": best.log_probability,
        **details.of(best, translation),
    }
    if alignments is not None:
        record["alignment"] = alignments[0]
    if translation.n_parts > 1:
        record["parts"] = translation.n_parts
    if translation.unsatisfied:
        record["unsatisfied"] = list(translation.unsatisfied)
    if translation.is_truncated:
        record["truncated"] = True
    if lists_hypotheses:
        record["hypotheses"] = [
            {
                "translation": hypothesis.text,
                "score": hypothesis.score,
                "log_probability": hypothesis.log_probability,
                "token_ids": list(hypothesis.token_ids),
                **details.of(hypothesis, translation),
                **({} if alignments is None else {"alignment": alignments[rank]}),
            }
            for rank, hypothesis in enumerate(translation.hypotheses)
        ]
    return record


def _tsv_line(translation: Translation, hypothesis: TranslatedText) -> str:
    # A source from JSON can hold line ends, too
    texts = (text.translate(TSV_ENDS) for text in (translation.source, hypothesis.text))
    doubt = () if hypothesis.doubt is None else (f"{hypothesis.doubt.probability:.4f}",)
    return "\t".join((str(translation.index), *texts, f"{hypothesis.score:.6f}", *doubt))


def _moses_line(translation: Translation, hypothesis: TranslatedText) -> str:
    text = moses_text(hypothesis.text)
    features = (
        f"LogProbability= {hypothesis.log_probability:.6f} Length= {len(hypothesis.token_ids)}"
    )
    return f"{translation.index} ||| {text} ||| {features} ||| {hypothesis.score:.6f}"


def moses_text(text: str) -> str:
    """Parts the separators in a text, which would begin another field."""
    return text.replace("|||", "| | |")


def flags_of(hypothesis: TranslatedText, translation: Translation) -> list[str]:
    """Names the warning signs of a hypothesis; see the head of this file."""
    source_ids = translation.source_ids
    n_source, n_target = len(source_ids), len(hypothesis.token_ids)
    steps = hypothesis.token_log_probabilities
    signs = {
        "unfinished": not hypothesis.is_finished,
        # The translation of a source that repeats itself may do so, too
        "repetition": repeats(hypothesis.token_ids) and not repeats(source_ids),
        "length": n_target > LARGEST_RATIO * n_source + LARGEST_EXTRA
        or n_target < SMALLEST_RATIO * n_source,
        "improbable": sum(steps) < LEAST_MEAN * len(steps),
        "dropped": n_target < n_source
        and n_target < n_source * _least_share(translation.source, hypothesis.text),
        "unseen": bool(translation.unseen),
        "doubt": hypothesis.doubt is not None and hypothesis.doubt.is_likely,
    }
    return [name for name, is_there in signs.items() if is_there]


def _least_share(source: str, translation: str) -> float:
    """Share of the source's tokens that a translation has at least which dropped no sentence."""
    from tformer_cli.search.sentences import split_sentences  # for flags only

    n_source, n_target = len(split_sentences(source)), len(split_sentences(translation))
    return (n_source + n_target) / (2 * n_source) if n_target < n_source else 0.0


def repeats(tokens: Sequence[int]) -> bool:
    """Returns whether a run of tokens stands several times in a row."""
    for period in range(1, LONGEST_RUN + 1):
        # Less one period: the first run has no earlier tokens to equal
        needed = max(LEAST_REPEATS * period, LEAST_REPEATED) - period
        n_same = 0
        for token, earlier in zip(tokens[period:], tokens, strict=False):
            n_same = n_same + 1 if token == earlier else 0
            if n_same >= needed:
                return True
    return False
