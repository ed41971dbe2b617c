"""The decoder's reading of each encoder layer, for sentences; and maps fitted to a corpus."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack

import torch
from torch import Tensor

from tformer_cli.artifacts.config_file import CONFIG
from tformer_cli.errors import DataError, UsageError
from tformer_cli.inspect.capture.maps import IdPair, longest_side
from tformer_cli.inspect.jobs.reader import ReadReport, corpus_pairs, inspected_model
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.inspect.view import Subject
from tformer_cli.kinds.stored_model import Opened
from tformer_cli.metrics.scores import sentence_score
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.lens import (
    FittedLayer,
    Lens,
    fit_lens,
    lens_of,
    read_layers,
    single,
    weights_hash,
)
from tformer_cli.plugins.instruments.lens_file import StoredMaps, store_maps
from tformer_cli.plugins.instruments.observed import record_module
from tformer_cli.plugins.instruments.views.layers import MOST_LINES, LayerReading, LayersRecord
from tformer_cli.plugins.instruments.views.logits import TOP, agreements, positions_of
from tformer_cli.wording import count_of

LEAST_LINES = 10
"""Fewer lines leave less than two to measure maps with."""


class LayerModel:
    """A model whose decoder reads an earlier layer of the encoder, for a search."""

    def __init__(self, model: Transformer, lens: Lens, layer: int) -> None:
        self._model, self._lens, self._layer = model, lens, layer
        # Attributes that a search also reads from a model
        self.vocab_size, self.max_positions = model.vocab_size, model.max_positions
        self.source_eos, self.decoder = model.source_eos, model.decoder
        self.output_product = model.output_product
        self.start_cache, self.decode_step = model.start_cache, model.decode_step

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        with ExitStack() as hooks:
            record = record_module(hooks, self._model.encoder.layers[self._layer])
            self._model.encode(source, source_mask)
        assert record.output is not None  # noqa: S101 - the layer was run
        return self._lens.read(self._model, "enc", self._layer, record.output)


class LayersReader:
    """Decodes each encoder layer: what it would write, and the probability of a target."""

    def __init__(self, subject: Subject, *, tuned: bool) -> None:
        assert isinstance(subject.model, Transformer)  # noqa: S101
        assert subject.translator is not None  # noqa: S101
        self._model, self._labels = subject.model, subject.labels
        self._lens = lens_of(subject, tuned=tuned)
        self._has_norm = not isinstance(self._model.encoder.final_norm, torch.nn.Identity)
        translator = subject.translator.of_sentences()
        self._translators = [
            translator.with_model(LayerModel(self._model, self._lens, layer))
            for layer in range(len(self._model.encoder.layers))
        ]
        self._chrf = sentence_score("chrf")

    @torch.inference_mode()
    def read(self, sentence: HeadsRecord) -> LayersRecord:
        """Reads one; a blank line has no layers."""
        maps = sentence.maps
        if maps is None:
            return LayersRecord(sentence=sentence, lens=self._lens, has_norm=self._has_norm)
        batch = single(self._model, maps.source_ids, maps.target_input_ids)
        logits, layers = read_layers(self._model, batch, "enc", self._lens)
        positions = positions_of(
            sentence,
            logits[0].cpu(),
            torch.stack([layer_logits[0].cpu() for layer_logits in layers]),
            self._labels,
            TOP,
        )
        places = range(len(positions))
        targets = torch.tensor(maps.target_ids)
        readings = []
        for layer, (share, scores) in enumerate(zip(agreements(positions), layers, strict=True)):
            (translation,) = self._translators[layer].translate([sentence.source])
            written = translation.hypotheses[0].text if translation.hypotheses else ""
            of_target = scores[0].cpu().double().log_softmax(dim=1)[places, targets]
            ranks = [place.lens[layer].rank for place in positions]
            readings.append(
                LayerReading(
                    layer=layer,
                    text=written,
                    chrf=self._chrf(written, sentence.target),
                    agreement=share,
                    log_probability=of_target.mean().item(),
                    rank=sum(ranks) / len(ranks),
                )
            )
        return LayersRecord(
            sentence=sentence,
            lens=self._lens,
            has_norm=self._has_norm,
            layers=tuple(readings),
            positions=positions,
        )


def tune_lens(
    opened: Opened,
    lines: Iterable[str],
    targets: Iterable[str] | None = None,
    progress: Callable[[int], None] = lambda done: None,  # noqa: ARG005 - the default is silent
) -> list[FittedLayer]:
    """Fits a map to each layer of each stack but the last, and stores them with the model."""
    path, model = opened.directory.path, inspected_model(opened.directory)
    if not (path / CONFIG).is_file():
        raise UsageError(
            f"--tune: stores maps in the directory of a model, but another tool made {path}; "
            "import it with --weights float32 first"
        )
    pairs = read_corpus(opened, lines, targets)
    if len(pairs) < LEAST_LINES:
        raise DataError(
            f"--tune: has {count_of(len(pairs), 'different line')} that the model takes; give at "
            f"least {LEAST_LINES}, better 500"
        )
    lens, fitted = fit_lens(model, pairs, progress)
    if not fitted:
        raise UsageError("--tune: each stack of MODEL has one layer, which needs no map; omit it")
    store_maps(
        path,
        StoredMaps(
            maps=lens.maps,
            weights=weights_hash(model),
            agreement={o.name: {"untuned": o.untuned, "tuned": o.tuned} for o in fitted},
        ),
    )
    return fitted


def read_corpus(
    opened: Opened, lines: Iterable[str], targets: Iterable[str] | None = None
) -> list[IdPair]:
    """Reads different lines as ids, with given targets or translations, up to `MOST_LINES`.

    Held-out lines must not be among the fitted ones; lines that are too long are skipped.
    """
    report = ReadReport()
    pairs: dict[IdPair, None] = {}
    for buffer in corpus_pairs(opened, lines, targets):
        fitting = report.fitting(buffer, opened.config, longest_side(opened.config))[1]
        pairs |= dict.fromkeys((tuple(source), tuple(target)) for source, target in fitting)
        if len(pairs) >= MOST_LINES:
            break
    return [*pairs][:MOST_LINES]
