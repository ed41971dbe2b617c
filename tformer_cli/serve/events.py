"""Results as events of our own protocol: the service writes them, and so does the inspector."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from tformer_cli.search.formats import flags_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.search.translator import Translation
    from tformer_cli.text.tokenizer import Tokenizer

SCHEMA = "tformer.live/1"
Event = dict[str, Any]


def _translation(one: Translation) -> Event:
    hypotheses = [
        {
            "text": text.text,
            "score": text.score,
            "log_probability": text.log_probability,
            "token_log_probabilities": list(text.token_log_probabilities),
            "token_ids": list(text.token_ids),
        }
        for text in one.hypotheses
    ]
    best = one.hypotheses[0]
    return {
        "index": one.index,
        "source": {"text": one.source, "ids": list(one.source_ids)},
        "target": {"text": best.text, "ids": list(best.token_ids)},
        "hypotheses": hypotheses,
        "flags": flags_of(best, one),
        "unsatisfied": list(one.unsatisfied),
    }


def add_pieces(event: Event, tokenizer: Tokenizer) -> None:
    """Adds the tokens of both sides of a translation as text."""
    for side in ("source", "target"):
        event[side]["pieces"] = getattr(tokenizer, side).pieces(event[side]["ids"])


def _of_line(one: Any, **details: Any) -> Event:  # noqa: ANN401 - results of many verbs
    """Returns what the command of a verb writes of a result as JSON."""
    found: Event = json.loads(one.line("jsonl", **details))
    return found


def _generation(one: Any) -> Event:  # noqa: ANN401 - a Generation
    from tformer_cli.kinds.lines.generate import format_generation

    written = format_generation(one, "jsonl", lists_texts=True)
    # The scores of a text that ended at a stop text while it was streamed are not known
    found: Event = json.loads(written, parse_constant=lambda _: None)
    return found


RESULTS: Mapping[Verb, tuple[str, Callable[[Any], Event]]] = {
    "translate": ("translation", _translation),
    "classify": ("classification", partial(_of_line, top=0)),
    "tag": ("tags", _of_line),
    "generate": ("generation", _generation),
    "fill": ("filled", _of_line),
    "embed": ("embedding", _of_line),
}
"""The event of each verb's result, and what writes it."""
