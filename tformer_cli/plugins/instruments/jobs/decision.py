"""One or two sentences in; a decision of the model and its causes out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Unpack

from torch import Tensor

from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.errors import DataError
from tformer_cli.heads.names import HeadId, Kind, by_layer, head_layout
from tformer_cli.heads.selectors import select_heads
from tformer_cli.inspect.capture.maps import longest_read, longest_side
from tformer_cli.inspect.jobs.heads import HeadInspector, subject_of
from tformer_cli.inspect.jobs.reader import (
    InspectionOptions,
    corpus_pairs,
    is_written,
    open_for_inspection,
)
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.inspect.view import check_gaps
from tformer_cli.kinds.stored_model import Opened
from tformer_cli.plugins.instruments.ablation import batch_of, to_device
from tformer_cli.plugins.instruments.decisions.attribution import (
    Slopes,
    direct_terms,
    integrate_gradients,
)
from tformer_cli.plugins.instruments.decisions.causes import Causes, Labels
from tformer_cli.plugins.instruments.decisions.decision import (
    Chosen,
    Decision,
    Words,
    decision_of,
    parting,
)
from tformer_cli.plugins.instruments.decisions.probing import Computed, Pool, Probe, compute
from tformer_cli.plugins.instruments.views.decision import (
    METHODS,
    VIEW,
    DecisionOptions,
    DecisionRecord,
    TokenEffect,
)
from tformer_cli.plugins.instruments.views.flow import read_flow
from tformer_cli.plugins.instruments.views.logits import LogitsRecord, read_logits
from tformer_cli.plugins.instruments.weighting import can_roll_out
from tformer_cli.search.hypothesis import never_interrupt
from tformer_cli.wording import count_of, is_blank

CORPUS_LINES = 64  # Lines of a corpus that is averaged over or drawn from; more change little


def inspect_decision(
    model: Path | str | ModelDirectory | Opened,
    sentences: Sequence[str],
    *,
    target: str | None = None,
    foil: str | None = None,
    corpus: Iterable[str] | None = None,
    settings: DecisionOptions | None = None,
    before_batch: Callable[[], None] = never_interrupt,
    **options: Unpack[InspectionOptions],
) -> DecisionRecord:
    """Finds what in a model makes it decide for one word and not another; see `DecisionOptions`.

    Of two sentences the decision is where the translations part, of one where it is closest,
    unless it is named. What `before_batch` raises ends the computation before its next batch.
    """
    settings = settings or DecisionOptions()
    settings.check(len(sentences))
    opened = open_for_inspection(model, tasks=VIEW.tasks, **options)
    inspector = HeadInspector(opened)  # Of all heads, whose maps a page shows
    records = [inspector.inspect_line(n, sentence) for n, sentence in enumerate(sentences)]
    finder = Finder(opened, settings, options.get("seed", 1), before_batch)
    return finder.explain(records, target, foil, corpus)


class Decider:
    """Finds the decision of one or two sentences, which is made alike of each."""

    def __init__(self, opened: Opened, before_batch: Callable[[], None] = never_interrupt) -> None:
        self._before_batch = before_batch
        self.subject = subject_of(opened.directory)
        self.model = self.subject.model
        self._side = opened.directory.tokenizer.target
        # Its measures of heads are not read: those of one head are enough to make a record
        self._inspector = HeadInspector(opened, [str(head) for head in head_layout(self.model)][:1])

    def read(self, sentences: Sequence[str]) -> list[HeadsRecord]:
        return [self._inspector.inspect_line(n, sentence) for n, sentence in enumerate(sentences)]

    def decide(
        self, records: Sequence[HeadsRecord], target: str | None, foil: str | None
    ) -> tuple[list[Probe], Chosen, list[LogitsRecord]]:
        for record in records:
            if record.maps is None:
                raise DataError("SENTENCE: is blank; give a sentence")
            check_gaps(record)
        logits = [
            read_logits(self.model, sentence, self.subject.labels, n_top=2, with_lens=False)
            for sentence in records
        ]
        if len(logits) == 2 and target is None and foil is None:
            chosen = parting(*logits)
        else:
            chosen = Words(logits[0], self._side, self.subject.labels).choose_decision(target, foil)
        probes = [
            Probe(self.model, decision, before_batch=self._before_batch)
            for decision in self._decisions(logits, chosen)
        ]
        return probes, chosen, logits

    def _decisions(self, logits: Sequence[LogitsRecord], chosen: Chosen) -> list[Decision]:
        """Makes the same decision for each sentence: after the first one's prefix, or its own."""
        prefix: tuple[int, ...] = ()
        decisions = []
        device = next(self.model.parameters()).device
        for record in logits:
            sentence, maps = record.sentence, record.sentence.captured
            position = record.positions[-1].position
            if sentence.has_both_sides:
                prefix = prefix or (*maps.target_input_ids[: chosen.number + 1], *chosen.shared)
                position = len(prefix) - 1
            elif maps.target_input_ids:
                prefix = (*maps.target_input_ids, *chosen.shared)
                position = len(prefix) - 1
            elif chosen.number >= len(record.positions):
                raise DataError("OTHER: has fewer places to decide at than SENTENCE")
            else:
                position = 0 if sentence.is_labeled else record.positions[chosen.number].position
            most = longest_read(self.model.config)
            if len(prefix) > most:
                raise DataError.of(
                    "{target}, {foil}: both words begin alike, and with that the text has "
                    "{} tokens, but the model reads {}; give a shorter sentence",
                    len(prefix),
                    most,
                )
            decisions.append(decision_of(sentence, position, prefix, chosen.ids, device))
        return decisions


class Finder:
    """Measures step by step; see `inspect_decision`."""

    def __init__(
        self,
        opened: Opened,
        settings: DecisionOptions,
        seed: int,
        before_batch: Callable[[], None] = never_interrupt,
    ) -> None:
        self._opened, self._settings, self._seed = opened, settings, seed
        self._decider = Decider(opened, before_batch)
        self._subject, self._model = self._decider.subject, self._decider.model
        self._selected = select_heads(settings.heads, head_layout(self._model))

    def explain(
        self,
        records: Sequence[HeadsRecord],
        target: str | None = None,
        foil: str | None = None,
        corpus: Iterable[str] | None = None,
    ) -> DecisionRecord:
        probes, chosen, logits = self._decider.decide(records, target, foil)
        record = self._record(records, probes, chosen, corpus, logits[0])
        return replace(record, notes=(*self._cuts(records[0], chosen, target, foil), *record.notes))

    def _cuts(
        self, record: HeadsRecord, chosen: Chosen, target: str | None, foil: str | None
    ) -> Iterator[str]:
        """Names words of which only a piece is decided on: any text has pieces."""
        pieces = self._opened.directory.tokenizer.target.piece_bytes
        for word, token in zip((target, foil), chosen.ids, strict=True):
            if word is not None and not record.gives_labels:
                piece = pieces[token].decode("utf-8", "replace").strip()
                if piece != word.strip():
                    yield f'the decision is on "{piece}", a piece of "{word.strip()}"'

    def _record(
        self,
        records: Sequence[HeadsRecord],
        probes: list[Probe],
        chosen: Chosen,
        corpus: Iterable[str] | None,
        logits: LogitsRecord,
    ) -> DecisionRecord:
        methods = set(self._settings.method) or set(METHODS)
        probe, others = probes[0], probes[1:]
        notes: list[str] = []
        draws = methods & {"mean", "resample"}
        pool = self._pool(probes, corpus, notes) if draws else None
        terms = direct_terms(probe) if "direct" in methods else None
        labels = tuple(map(self._labels, records, probes))
        causes = Causes(
            probe=probe,
            other=others[0] if others else None,
            labels=labels,
            methods=frozenset(methods),
            pool=pool,
            terms=terms,
        )
        notes += causes.list_unmatched()
        heads = [
            part
            for place, numbers in by_layer(self._selected).items()
            for part in causes.of_heads(place, numbers)
        ]
        heads.sort(key=lambda part: -abs(part.cause))
        layers = [part for part in causes.of_layers() if part.effects]
        rest = None
        if terms is not None:  # Heads are parts, selected or not
            known = {part.id for part in layers} | {str(head) for head in head_layout(self._model)}
            rest = {name: value for name, value in terms.items() if name not in known}
        n_top = self._settings.top
        strongest = [HeadId(part.kind, part.layer, part.head or 0) for part in heads[:n_top]]
        whole = integrate_gradients(probe) if "gradients" in methods else None
        return DecisionRecord(
            sentences=tuple(records),
            d=tuple(text.d for text in probes),
            names=(self._subject.labels[chosen.ids[0]], self._subject.labels[chosen.ids[1]]),
            ids=chosen.ids,
            position=probe.decision.position,
            written_at=tuple(map(_written_at, records, probes)),
            place=self._place(probe, logits, chosen),
            heads=tuple(heads),
            layers=tuple(layers),
            maps=tuple(causes.maps(strongest)),
            edges=tuple(causes.edges(self._selected, n_top if "edges" in methods else 0)),
            tokens=()
            if whole is None
            else tuple(self._tokens(records[0], labels[0], causes.slopes, whole.tokens, chosen)),
            notes=tuple(notes),
            rest=rest,
            direct_residual=None if terms is None else abs(sum(terms.values()) - probe.d),
            integrated_missing=None if whole is None else whole.missing,
            integrated_steps=0 if whole is None else whole.n_steps,
        )

    def _labels(self, record: HeadsRecord, probe: Probe) -> Labels:
        prefix = self._opened.directory.tokenizer.target.pieces(probe.decision.prefix_ids)
        return {"enc": record.source_pieces, "dec": prefix}

    def _pool(
        self, probes: Sequence[Probe], corpus: Iterable[str] | None, notes: list[str]
    ) -> Pool:
        texts: list[Computed] = [probe.values for probe in probes]
        of = "both sentences" if len(texts) > 1 else "the sentence"
        if corpus is not None:
            texts, device = [], next(self._model.parameters()).device
            longest = longest_side(self._opened.config)
            for buffer in corpus_pairs(self._opened, islice(corpus, CORPUS_LINES)):
                pairs = (ids for ids in buffer if is_written(ids, self._opened.config))
                batches = (
                    batch_of(self._model, [ids]) for ids in pairs if max(map(len, ids)) <= longest
                )
                texts += [compute(self._model, to_device(batch, device)) for batch in batches]
            if not texts:
                raise DataError("--corpus: no sentence fits the model; give shorter sentences")
            of = count_of(len(texts), "line") + " of the corpus"
        notes.append(f"mean and random values are those of {of}")
        return Pool(texts, self._seed)

    def _place(self, probe: Probe, logits: LogitsRecord, chosen: Chosen) -> str:
        sentence, side = logits.sentence, self._opened.directory.tokenizer.target
        if sentence.is_labeled:
            return "as the label"
        if sentence.has_places:
            piece = sentence.source_pieces[logits.positions[chosen.number].position]
            return f"at {piece}, token {probe.decision.position}"
        prefix = side.decode(probe.decision.prefix_ids)
        return "at the beginning" if is_blank(prefix) else f'after "{prefix}"'

    def _tokens(
        self,
        record: HeadsRecord,
        labels: Labels,
        slopes: Slopes,
        whole: dict[Kind, Tensor],
        chosen: Chosen,
    ) -> Iterator[TokenEffect]:
        shares: dict[Kind, list[float]] = {}
        if can_roll_out(self._model):
            flow = read_flow(self._model, record).flows["alti"]
            # Where the decision is not the model's own, the next piece may not be there
            row = min(chosen.number + len(chosen.shared), len(flow.source) - 1)
            shares = {"enc": flow.source[row].tolist(), "dec": flow.prefix[row].tolist()}
        for kind, values in whole.items():
            of_kind = shares.get(kind, [])
            for place, value in enumerate(values.tolist()):
                yield TokenEffect(
                    side="source" if kind == "enc" else "prefix",
                    piece=labels[kind][place],
                    integrated=value,
                    gradient=slopes.tokens[kind][place].item(),
                    alti=of_kind[place] if place < len(of_kind) else None,
                )


def _written_at(record: HeadsRecord, probe: Probe) -> int | None:
    """Finds the decision among the pieces of a text; None: it comes after them, or on them all."""
    place = probe.decision.position
    if record.has_places:
        return place
    # A named word, or the other sentence's place, may follow another prefix
    own = record.captured.target_input_ids[: place + 1]
    is_own = record.has_both_sides and list(own) == probe.decision.prefix_ids
    return place if is_own else None
