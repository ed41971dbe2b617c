"""Results as events of our protocol, written by the service and the inspector."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from tformer_cli.search.formats import flags_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.inspect.jobs.align import Aligner
    from tformer_cli.search.translator import Doubt, Translation
    from tformer_cli.text.tokenizer import Tokenizer

SCHEMA = "tformer.live/1"
Event = dict[str, Any]


def _translation(translation: Translation) -> Event:
    hypotheses = [
        {
            "text": hypothesis.text,
            "score": hypothesis.score,
            "log_probability": hypothesis.log_probability,
            "token_log_probabilities": list(hypothesis.token_log_probabilities),
            "token_ids": list(hypothesis.token_ids),
            **_doubt(hypothesis.doubt),
        }
        for hypothesis in translation.hypotheses
    ]
    best = translation.hypotheses[0]
    return {
        "index": translation.index,
        "source": {"text": translation.source, "ids": list(translation.source_ids)},
        "target": {"text": best.text, "ids": list(best.token_ids)},
        "hypotheses": hypotheses,
        "flags": flags_of(best, translation),
        "unsatisfied": list(translation.unsatisfied),
    }


def _doubt(doubt: Doubt | None) -> Event:
    if doubt is None:
        return {}
    return {
        "doubt": doubt.probability,
        "sentence_doubts": doubt.sentences,
        "word_probabilities": doubt.words,
    }


def add_pieces(event: Event, tokenizer: Tokenizer) -> None:
    """Adds the token texts of both sides to a translation event."""
    for side in ("source", "target"):
        event[side]["pieces"] = getattr(tokenizer, side).pieces(event[side]["ids"])


def alignment_of(aligner: Aligner, translation: Translation, number: int) -> Event | None:
    """Aligns the words of one sentence of a translation, from attention recorded in its search.

    Returns the inspector's event: words as character spans, the word of each token, and links; None
    if no attention was recorded.
    """
    from tformer_cli.inspect.alignment import link_words, links_of, spelled_words, words_of_ids

    best = translation.hypotheses[0]
    if not best.attention or best.attention[0].heads != aligner.heads:
        return None
    number = min(number, len(best.attention) - 1)
    widths = [attention.weights.shape[1] for attention in best.attention]
    # Either all parts end with an end-of-sentence token, or none does
    n_eos = (sum(widths) - len(translation.source_ids)) // len(widths)
    tokenizer = aligner.tokenizer
    source_ids = _part(translation.source_ids, [n - n_eos for n in widths], number)
    target_ids = _part(best.token_ids, best.part_lengths, number)
    text, translated = translation.source, best.text
    if len(widths) > 1:
        text, translated = translation.parts[number], tokenizer.target.decode_batch([target_ids])[0]
    source = words_of_ids(tokenizer.source, source_ids)
    target = words_of_ids(tokenizer.target, target_ids)
    our_words = spelled_words(tokenizer.source, source_ids)
    their_words = spelled_words(tokenizer.target, target_ids)
    (weights,) = aligner.heard_weights([(source, target)], [best.attention[number]])
    return {
        "words": {
            "source": word_spans(our_words.texts, text),
            "target": word_spans(their_words.texts, translated),
        },
        "tokens": {"source": our_words.of_token, "target": their_words.of_token},
        "links": sorted(links_of(link_words(weights, aligner.rule))),
    }


def _part(ids: Sequence[int], sizes: Sequence[int], number: int) -> Sequence[int]:
    start = sum(sizes[:number])
    return ids[start : start + sizes[number]]


def word_spans(words: Sequence[str], text: str) -> list[tuple[int, int]]:
    """(start, end) character span of each word; empty if the text spells the word differently."""
    spans, at = [], 0
    for word in words:
        start = text.find(word, at)
        if start < 0:
            spans.append((at, at))
            continue
        at = start + len(word)
        spans.append((start, at))
    return spans


def _line_event(result: Any, **details: Any) -> Event:  # noqa: ANN401 - results of many verbs
    """Returns the JSON object that the command of the verb writes for a result."""
    event: Event = json.loads(result.line("jsonl", **details))
    return event


def _generation(generation: Any) -> Event:  # noqa: ANN401 - a Generation
    from tformer_cli.kinds.lines.generate import format_generation

    line = format_generation(generation, "jsonl", lists_texts=True)
    # A text that was streamed and ended at a stop text has no scores
    event: Event = json.loads(line, parse_constant=lambda _: None)
    return event


RESULTS: Mapping[Verb, tuple[str, Callable[[Any], Event]]] = {
    "translate": ("translation", _translation),
    "classify": ("classification", partial(_line_event, top=0)),
    "tag": ("tags", _line_event),
    "generate": ("generation", _generation),
    "fill": ("filled", _line_event),
    "embed": ("embedding", _line_event),
}
"""Event name of each verb, and the function that makes the event of a result."""
