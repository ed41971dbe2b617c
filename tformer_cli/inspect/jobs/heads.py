"""Sentences in, their attention maps out."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast

from tformer_cli.artifacts.config_file import ONE_MODEL, TASKS, task_kind
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.artifacts.shortlist_file import load_frequencies
from tformer_cli.errors import DataError, Setting, UsageError
from tformer_cli.heads.names import (
    CaptureMode,
    HeadId,
    HeadLayout,
    Inspected,
    layer_layout,
    layout_of,
)
from tformer_cli.heads.roles import UNKNOWN, RareTokens, TokenFrequencies
from tformer_cli.heads.selectors import HeadSelection, check_names_layers
from tformer_cli.inspect.alignment import (
    HeadChoice,
    SpelledWords,
    align_words,
    choose_heads,
    spelled_words,
)
from tformer_cli.inspect.capture.maps import (
    AttentionMaps,
    HeadVectors,
    longest_side,
    recorded_maps,
    recorded_vectors,
)
from tformer_cli.inspect.heads.metrics import metrics_of
from tformer_cli.inspect.jobs.reader import (
    InspectionOptions,
    check_targets,
    inspected_model,
    open_for_inspection,
)
from tformer_cli.inspect.pages import ShownRecord
from tformer_cli.inspect.record import HeadsRecord, ModelSummary, PageExtras
from tformer_cli.inspect.view import Subject
from tformer_cli.inspect.views import heads as heads_view
from tformer_cli.inspect.weighting import ALPHA, WEIGHTINGS, WeightingName
from tformer_cli.kinds import kind_of
from tformer_cli.kinds.kind import FilledGap
from tformer_cli.kinds.stored_model import Opened
from tformer_cli.model.config import ModelConfig
from tformer_cli.search.constraints import NO_CONSTRAINTS, LineConstraints
from tformer_cli.sockets import load_place
from tformer_cli.text.lines import given_lines
from tformer_cli.text.tokenizer import Tokenizer
from tformer_cli.wording import count_of, is_blank

if TYPE_CHECKING:
    from tformer_cli.inspect.capture.live import RecordingModel, SearchTree
    from tformer_cli.model.encoder_only import Classifier

CLASS = "[class]"  # Label of the class token of an image

WEIGHTED_MAPS = "tformer_cli.plugins.instruments.weighting:weighted_maps"


def inspect_heads(
    model: Path | str | ModelDirectory,
    lines: Iterable[str],
    *,
    targets: Iterable[str] | None = None,
    heads: Sequence[str] = (),
    mode: CaptureMode = "forced",
    rank: int = 1,
    weights: WeightingName | None = None,
    for_page: bool = False,
    **options: Unpack[InspectionOptions],
) -> Iterator[HeadsRecord]:
    """Captures the heads of a model on sentences and their translations, one record a line.

    Translations are found as `translate` finds them; the maps then come from one pass over the one
    that is looked at, or from the search itself. A record is made when it is asked for, so any
    number of lines can be streamed. A line that is translated sentence by sentence has a record for
    each sentence, a blank one a record without heads.
    """
    opened = open_for_inspection(model, hypothesis=rank, tasks=heads_view.VIEW.tasks, **options)
    inspector = HeadInspector(
        opened, heads, mode=mode, rank=rank, weights=weights, for_page=for_page, by_kernels=True
    )
    return inspector.inspect(lines, targets)


class HeadInspector:
    """Inspects the heads of an opened model, sentence by sentence."""

    def __init__(
        self,
        opened: Opened,
        heads: Sequence[str] = (),
        *,
        mode: CaptureMode = "forced",
        rank: int = 1,
        weights: WeightingName | None = None,
        for_page: bool = False,
        by_kernels: bool = False,
    ) -> None:
        """Takes the requests of a view: `by_kernels` if it compares no map with torch's numbers."""
        self._labels = opened.directory.info.labels
        self._directory, self._config = opened.directory, opened.config
        self._tokenizer = opened.directory.tokenizer
        self._splitter = opened.translator
        self._translator = opened.translator.of_sentences()
        self._rank = rank
        self._for_page = for_page
        self._weighting = WEIGHTINGS[weights or "alpha"]
        self._is_of_texts = self._config.is_decoder_only
        # what needs torch in any case compares maps with more of torch's
        is_plain = mode == "forced" and self._weighting == ALPHA
        self._by_kernels = by_kernels and is_plain and task_kind(self._config) == "translate"
        if self._is_of_texts or self._config.is_encoder_only:
            for setting, is_given in (("mode live", mode == "live"), ("rank", rank > 1)):
                if is_given:
                    model = ONE_MODEL[task_kind(self._config)]
                    raise UsageError.of(
                        "{}: only for translation models, not {}; omit it", Setting(setting), model
                    )
        self._predictor = kind_of(self._config).predictor(opened)
        self._recorder: RecordingModel | None = None
        if mode == "live":
            from tformer_cli.inspect.capture import live

            n_noted = live.n_candidates(opened.translator.config) if for_page else 0
            n_start = len(self._tokenizer.target.start)
            self._recorder = live.RecordingModel(opened.directory.model, n_noted, n_start)
            self._recorded_translator = self._translator.with_model(self._recorder)
        self._layout = layout_of(self._config)
        self._aligning = _aligning_heads(opened.directory, self._layout)
        if self._weighting.is_of_layers:
            check_names_layers(heads, self._weighting.name)
            self._layout = layer_layout(self._model)
        self._selection = HeadSelection(heads, self._layout)
        self._summary = summary_of(opened.directory)
        self._frequencies = frequencies_of(opened.directory)

    @property
    def _model(self) -> Inspected:
        """The model in torch, which is made once something asks for it."""
        return inspected_model(self._directory)

    def inspect(
        self, lines: Iterable[str], targets: Iterable[str] | None = None
    ) -> Iterator[HeadsRecord]:
        for index, (line, target) in enumerate(self.pairs(lines, targets)):
            yield self.inspect_line(index, line, target)

    def pairs(
        self, lines: Iterable[str], targets: Iterable[str] | None = None
    ) -> Iterator[tuple[str, str | None]]:
        """Yields each line with its target; None: the model's translation is to be looked at.

        Without targets a line that is translated sentence by sentence comes as its sentences.
        """
        if targets is not None and self._recorder is not None:
            raise UsageError.of(
                "{mode live}: shows the search, but a given target was not searched for; omit the "
                "target or {mode live}"
            )
        check_targets(self._config, targets)
        lines = given_lines(lines)
        if targets is None:
            if task_kind(self._config) != "translate":
                return ((line, None) for line in lines)
            return ((text, None) for line in lines for text in self._splitter.sentences(line))
        return _with_targets(lines, given_lines(targets, "targets"))

    def inspect_line(
        self,
        index: int,
        line: str,
        target: str | None = None,
        constraints: LineConstraints = NO_CONSTRAINTS,
    ) -> HeadsRecord:
        """Inspects a line with the target that is given, or found under its constraints."""
        if self._is_of_texts:  # the text is the target that a language model is forced to write
            target = line
        if is_blank(line):
            return ShownRecord(
                index=index,
                model=self._summary,
                source=line,
                target=target or "",
                is_forced=target is not None,
                weighting=self._weighting,
            )
        if self._config.is_encoder_only:
            return self._inspect_read(index, line)
        if target is None:
            return self._inspect_translation(index, line, constraints)
        source_ids = [] if self._is_of_texts else self._tokenizer.source.encode(line)
        target_ids = self._tokenizer.target.encode(target)
        self._check_length(index, source_ids)
        self._check_length(index, target_ids)
        texts = ("" if self._is_of_texts else line, target)
        return self._record(index, texts, self._capture_pass(source_ids, target_ids))

    def _capture_pass(self, source: Sequence[int], target: Sequence[int]) -> AttentionMaps:
        """Captures a forced pass: of the kernels where these compute the model, else of torch."""
        recorded = self._translator.record(source, target) if self._by_kernels else None
        if recorded is not None:
            return recorded_maps(self._config, recorded, source, target)
        from tformer_cli.inspect.capture.forced import capture_maps

        return capture_maps(self._model, source, target)

    def _vectors(self, maps: AttentionMaps) -> HeadVectors:
        ids = maps.source_tokens, maps.target_ids[:-1]
        recorded = self._translator.record(*ids) if self._by_kernels else None
        if recorded is not None:
            return recorded_vectors(self._config, recorded, maps)
        from tformer_cli.inspect.capture.forced import capture_vectors

        return capture_vectors(self._model, maps)

    def _inspect_translation(
        self, index: int, line: str, constraints: LineConstraints
    ) -> HeadsRecord:
        self._check_length(index, self._tokenizer.source.encode(line))
        translation = self._translator.translate([line], index, [constraints])[0]
        n_found = len(translation.hypotheses)
        if n_found < self._rank:
            raise DataError.of(
                "{rank}: line {} has only {}, but rank is {}; choose a lower one, or a larger "
                "{beam_size}",
                index + 1,
                count_of(n_found, "translation"),
                self._rank,
            )
        hypothesis = translation.hypotheses[self._rank - 1]
        ids = translation.source_ids, hypothesis.token_ids
        # where nothing is left of a line there was no search
        live = self._live_maps(index, line, constraints, *ids) if translation.n_parts else None
        searched = self._translator.prepare([line], index, [constraints])[0].sentences
        n_forced = sum(len(sentence.prefix) for sentence in searched)
        return self._record(
            index,
            (line, hypothesis.text),
            self._capture_pass(*ids) if live is None else live,
            score=hypothesis.score,
            rank=self._rank,
            mode="forced" if live is None else "live",
            forced=hypothesis.token_log_probabilities[:n_forced],
        )

    def _live_maps(
        self,
        index: int,
        line: str,
        constraints: LineConstraints,
        source_ids: Sequence[int],
        target_ids: Sequence[int],
    ) -> AttentionMaps | None:
        """Records torch's search of a line and returns the maps of a hypothesis it went through.

        The translation is the translator's, whichever engine searched it. Compiled kernels round
        differently from torch; where two hypotheses are nearly equal, torch's search may pass by
        the one they chose. Then there is nothing to show, and None is returned, as without "live".
        """
        if self._recorder is None:
            return None
        from tformer_cli.inspect.capture.live import NotSearchedError

        self._recorder.forget()
        self._recorded_translator.translate([line], index, [constraints])
        try:
            return self._recorder.maps_of(source_ids, target_ids)
        except NotSearchedError:
            return None

    def _inspect_read(self, index: int, line: str) -> HeadsRecord:
        if self._predictor is not None:
            (ids,) = self._predictor.encode([line])
            self._check_length(index, ids)
            text, gaps = self._predictor.predict_places(line, ids)
            return self._record(index, (line, text), self._capture_pass(ids, ()), gaps=gaps)
        ids = self._tokenizer.source.encode(line)
        self._check_length(index, ids)
        if TASKS[self._summary.task].head != "labels":
            return self._record(index, (line, ""), self._capture_pass(ids, ()))
        from tformer_cli.search.encoding import label_probabilities

        probabilities = label_probabilities(cast("Classifier", self._model), [ids])[0]
        probability = max(probabilities)
        label = self._labels[probabilities.index(probability)]
        maps = self._capture_pass(ids, ())
        return self._record(index, (line, label), maps, probability=probability)

    def _record(
        self,
        index: int,
        texts: tuple[str, str],
        maps: AttentionMaps,
        *,
        score: float | None = None,
        rank: int | None = None,
        mode: CaptureMode = "forced",
        probability: float | None = None,
        gaps: tuple[FilledGap, ...] = (),
        forced: Sequence[float] = (),
    ) -> HeadsRecord:
        """Joins the facts about a pair; with a score, the model found it."""
        # only sources of words have rare words
        has_words = not (self._is_of_texts or self._config.reads_images)
        rare = UNKNOWN if has_words else RareTokens()
        if self._frequencies is not None and has_words:
            rare = self._frequencies.rare_tokens(maps.source_ids)
        weighted = maps
        if self._weighting != ALPHA:
            weighted = load_place(WEIGHTED_MAPS)(self._model, maps, self._weighting.name)
        return ShownRecord(
            index=index,
            model=self._summary,
            source=texts[0],
            target=texts[1],
            is_forced=score is None and not self._config.is_encoder_only,
            score=score,
            probability=probability,
            gaps=gaps,
            rank=rank,
            mode=mode,
            source_pieces=source_labels(self._tokenizer, self._config, maps),
            target_pieces=tuple(self._tokenizer.target.pieces(maps.target_ids)),
            input_pieces=tuple(self._tokenizer.target.pieces(maps.target_input_ids)),
            maps=weighted,
            heads=tuple(self._select_heads(weighted, rare)),
            weighting=self._weighting,
            aligned=align_words(self._tokenizer, maps, self._aligning),
            rare=rare,
            extras=self._extras(maps, mode, forced) if self._for_page else None,
        )

    def _extras(
        self, maps: AttentionMaps, mode: CaptureMode, forced: Sequence[float]
    ) -> PageExtras:
        source_ids, target_ids = maps.source_tokens, maps.target_ids[:-1]
        search: SearchTree | None = None
        if self._recorder is not None and mode == "live":
            config = self._translator.config
            search = self._recorder.tree_of(source_ids, target_ids, config, forced)
        ids = [] if search is None else sorted({node.token for node in search.nodes})
        words = spelled_words(self._tokenizer.source, source_ids)
        if self._config.reads_images:  # each patch is a word
            labels = patch_labels(self._config)
            names = (label if label == CLASS else f"patch {label}" for label in labels)
            words = SpelledWords(tuple(names), tuple(range(self._config.n_positions)))
        return PageExtras(
            source_words=words,
            target_words=spelled_words(self._tokenizer.target, target_ids),
            vectors=self._vectors(maps),
            search=search,
            search_pieces=dict(zip(ids, self._tokenizer.target.pieces(ids), strict=True)),
        )

    def _select_heads(self, maps: AttentionMaps, rare: RareTokens) -> list[HeadId]:
        if not self._selection.needs_metrics:
            return self._selection.select({})
        metrics = metrics_of(
            maps, list(self._layout), scales_rows=self._weighting != ALPHA, rare=rare.positions
        )
        return self._selection.select(metrics)

    def _check_length(self, index: int, ids: Sequence[int]) -> None:
        # A line that `translate` would cut in parts has a map for each part and none of its own.
        longest = longest_side(self._config)
        if len(ids) > longest:
            raise DataError(
                f"line {index + 1}: has {count_of(len(ids), 'token')}, but the model takes "
                f"{longest}; inspect a shorter sentence"
            )


def source_labels(
    tokenizer: Tokenizer, config: ModelConfig, maps: AttentionMaps
) -> tuple[str, ...]:
    if config.reads_images:
        return patch_labels(config)
    return tuple(tokenizer.source.pieces(maps.source_ids))


def patch_labels(config: ModelConfig) -> tuple[str, ...]:
    """Names the class token, if any, and the patches by row and column, from 0."""
    rows, columns = config.grid
    first = (CLASS,) if config.class_token else ()
    return (*first, *(f"{row},{column}" for row in range(rows) for column in range(columns)))


def _with_targets(lines: Iterable[str], targets: Iterable[str]) -> Iterator[tuple[str, str]]:
    for number, (line, target) in enumerate(zip_longest(lines, targets), 1):
        if line is None or target is None:
            more, fewer = ("targets", "lines") if line is None else ("lines", "targets")
            raise DataError(f"line {number}: there are more {more} than {fewer}; give one for each")
        yield line, target


def summary_of(directory: ModelDirectory) -> ModelSummary:
    config = directory.config
    return ModelSummary(
        name=directory.path.resolve().name,
        n_encoder_layers=config.n_encoder_layers,
        n_decoder_layers=config.n_decoder_layers,
        n_heads=config.n_heads,
        step=directory.info.step,
        n_key_heads=config.n_key_heads if 0 < config.n_key_heads < config.n_heads else 0,
        task=task_kind(config),
        reads_images=config.reads_images,
    )


def subject_of(directory: ModelDirectory) -> Subject:
    tokenizer = directory.tokenizer
    labels = directory.info.labels or tuple(tokenizer.target.pieces(range(tokenizer.vocab_size)))
    summary = summary_of(directory)
    return Subject(
        lambda: inspected_model(directory), summary, labels, directory.path, tokenizer=tokenizer
    )


def frequencies_of(directory: ModelDirectory, place: Path | None = None) -> TokenFrequencies | None:
    side = directory.tokenizer.source
    counts = load_frequencies(place or directory.path, side.vocab_size)
    return None if counts is None else TokenFrequencies(counts, side.mask_id)


def _aligning_heads(directory: ModelDirectory, layout: HeadLayout) -> HeadChoice | None:
    """The heads that align words; of stored ones that the model has no more, the default."""
    if not any(layout.cross):
        return None
    try:
        return choose_heads(layout, directory.info.alignment)
    except UsageError:
        return choose_heads(layout, None)
