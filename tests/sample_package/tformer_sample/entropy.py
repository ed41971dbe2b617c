"""`tformer inspect-entropy`: a view of every head of a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tformer_cli.inspect.view import NoOptions, SentenceView, Subject
from tformer_cli.show.document import Block, Table, Texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tformer_cli.inspect.record import HeadsRecord
    from tformer_cli.show.document import Room


@dataclass(frozen=True)
class Entropies:
    """Mean entropy of the rows of each head, in nats."""

    sentence: HeadsRecord
    heads: dict[str, float]


class EntropyView(SentenceView[Entropies]):
    """H = -Σ_j a_j·ln a_j, averaged over queries: 0 where a head looks at one token."""

    name = "entropy"
    title = "Entropy of attention"
    help = """Show how widely each head spreads its attention.

    Examples:
        tformer inspect-entropy runs/quickstart "The animal was tired."
    """

    def read(self, subject: Subject, sentence: HeadsRecord, options: NoOptions) -> Entropies:
        heads = {}
        for head in sentence.heads if sentence.maps is not None else ():
            weights = sentence.maps.weights(head).astype(np.float64)
            logs = np.log(np.where(weights > 0.0, weights, 1.0))
            heads[str(head)] = round(float(-(weights * logs).sum(axis=-1).mean()), 6)
        return Entropies(sentence, heads)

    def json(self, record: Entropies) -> dict[str, Any]:
        return {"schema": "sample.entropy/1", "entropy": record.heads}

    def blocks(self, record: Entropies, options: NoOptions, room: Room) -> Iterator[Block]:
        yield Texts(record.sentence.texts)
        rows = [(head, f"{nats:.3f}") for head, nats in record.heads.items()]
        yield Table(head=("head", "entropy"), rows=rows)


VIEW = EntropyView()
