"""Events of the live page: the next tokens, heads switched off and decisions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tformer_cli.plugins.instruments.jobs.decision import inspect_decision
from tformer_cli.plugins.instruments.jobs.report import DECIDED_BY
from tformer_cli.plugins.instruments.views.ablation import ablate_sentence
from tformer_cli.plugins.instruments.views.decision import VIEW as DECISION
from tformer_cli.plugins.instruments.views.decision import DecisionOptions
from tformer_cli.plugins.instruments.views.logits import layer_logits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tformer_cli.inspect.record import HeadsRecord
    from tformer_cli.inspect.view import Subject
    from tformer_cli.kinds.stored_model import Opened

Event = dict[str, Any]
N_TOP = 64
"""Next tokens sent with their logits; all others are summed into one number."""


def next_tokens(subject: Subject, record: HeadsRecord) -> Event | None:
    """The largest logits of each position, and the log of the summed exponentials of the rest.

    From these the page computes the distribution at any temperature; the mass of the rest, which is
    small, is exact only at temperature 1.
    """
    if record.maps is None:
        return None
    places = [gap.position for gap in record.gaps] if record.has_places else None
    if places == []:
        return None
    maps = record.maps
    logits = layer_logits(
        subject.model, maps.source_ids, maps.target_input_ids, places, with_lens=False
    )[0]
    values, ids = logits.double().topk(min(N_TOP, logits.shape[1]))
    rest_logits = logits.double().scatter(1, ids, -math.inf).logsumexp(dim=1)
    return {
        "positions": [
            {
                "top": [
                    [subject.labels[token], round(value, 4)]
                    for token, value in zip(tokens, logit, strict=True)
                ],
                "rest": None if math.isinf(rest) else round(rest, 4),
            }
            for tokens, logit, rest in zip(
                ids.tolist(), values.tolist(), rest_logits.tolist(), strict=True
            )
        ]
    }


def heads_off_in_turn(subject: Subject, record: HeadsRecord) -> Event:
    """Change of the log-probability of the answer with each head switched off in turn."""
    ablation = ablate_sentence(subject.model, record, record.heads, subject.labels)
    return {
        "heads": [str(head) for head in ablation.effects],
        "delta": [round(-effect * ablation.n_tokens, 5) for effect in ablation.effects.values()],
        "loss": ablation.loss,
        "n_tokens": ablation.n_tokens,
    }


def decision(
    opened: Opened,
    texts: Sequence[str],
    target: str | None,
    foil: str | None,
    before_batch: Callable[[], None],
) -> Event:
    """Finds why the model writes one word and not another, as `tformer inspect-decision` does."""
    # Replacing a head by means or random values costs nine times as much as switching it off, and
    # other clients wait for this process
    methods = (*DECIDED_BY, "gradients")
    settings = DecisionOptions(
        method=tuple(method for method in methods if method != "patch" or len(texts) > 1)
    )
    decision = inspect_decision(
        opened,
        texts,
        target=target,
        foil=foil,
        settings=settings,
        before_batch=before_batch,
    )
    return {"data": DECISION.json(decision)}
