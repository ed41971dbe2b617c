"""Looking into a loaded model: its heads, views of them, word alignment, whole reports."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tformer_cli.api.calls import (
    check_arguments,
    check_number,
    drop_none,
    in_python,
    make_settings,
    new_lock,
)
from tformer_cli.api.results import AlignedPair, Results
from tformer_cli.artifacts.config_file import COMMANDS, TRANSLATORS
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.kinds import kind_of, reads_names
from tformer_cli.kinds.opening import open_model
from tformer_cli.search.keywords import DecodingOverrides
from tformer_cli.search.opening import overridden
from tformer_cli.search.translator import BUFFER_LINES
from tformer_cli.settings import between, type_problem
from tformer_cli.sockets import load_place
from tformer_cli.text.lines import check_lines, given_lines
from tformer_cli.wording import as_named

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Literal, Unpack

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.artifacts.config_file import TaskKind
    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.heads.names import CaptureMode
    from tformer_cli.inspect.alignment import Convention
    from tformer_cli.inspect.jobs.align import PairTexts
    from tformer_cli.inspect.pages import Report
    from tformer_cli.inspect.record import HeadsRecord
    from tformer_cli.inspect.view import SentenceView
    from tformer_cli.inspect.weighting import WeightingName
    from tformer_cli.kinds.kind import Kind
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.plugins.instruments.views.flow import FlowRecord
    from tformer_cli.plugins.instruments.views.logits import LogitsRecord
    from tformer_cli.search.keywords import TranslatorOptions
    from tformer_cli.search.translator import Translator

    Lines = Iterable[str | Path | NDArray[np.uint8]]

L = TypeVar("L")
R = TypeVar("R")


class InspectedModel:
    """The part of a loaded model that looks into it; see `LoadedModel`."""

    def __init__(self, opened: Opened, options: TranslatorOptions | None = None) -> None:
        """Takes an opened model.

        Args:
            opened: from `open_model`; the functions of `tformer_cli.kinds.lines` take it, too.
            options: that it was opened with.
        """
        self._opened: Opened | None = opened
        self._options = options or {}
        self._for_inspection: Opened | None = None
        # Encoders are packed, and language models have no translator: both are opened again
        if "translate" in self._kind.verbs and opened.precision == "float32":
            self._for_inspection = opened if opened.engine in ("tformer", "torch") else None
        # One at a time: engines have their own buffers, and taps record every computation
        self._lock = new_lock()

    @property
    def opened(self) -> Opened:
        """The model directory as the features know it."""
        if self._opened is None:
            raise UsageError("model: is closed; read its results before, or load it again")
        return self._opened

    def __repr__(self) -> str:
        if self._opened is None:
            return "<a closed model>"
        opened = self.opened
        return f"<{as_named(str(opened.directory.path))}: {opened.precision} on {opened.place}>"

    def __dir__(self) -> list[str]:
        # Object's own names say nothing about a model
        return [name for name in dir(type(self)) if not name.startswith("_")]

    @check_arguments
    def inspect(
        self,
        view: str,
        lines: Lines | None = None,
        *,
        targets: Iterable[str] | None = None,
        **options: Any,  # noqa: ANN401 - the view's own
    ) -> Results[Any]:
        """Reads the view of `tformer inspect-NAME`, also one that another package adds.

        A notebook shows its page.

        Args:
            view: its name, such as "step".
            lines: source sentences, or images as for `classify`; none for a view of the model only.
            targets: a target for each line, looked at instead of the model's translation.
            options: settings of the view as of its command, and of this call's search.

        Returns:
            A record a line; a view of the model has one.

        Raises:
            UsageError: if there is no such view or setting, or a value is impossible.
            DataError: while it is read, if a line is too long or the sides differ in length.
        """
        from tformer_cli.inspect.jobs.heads import subject_of
        from tformer_cli.inspect.pages import framed_view, printed_view
        from tformer_cli.inspect.view import ModelView
        from tformer_cli.inspect.views import find_view

        row = find_view(view)
        own = {field.name for field in fields(row.Options)}
        known = DecodingOverrides.__annotations__.keys() - own
        search = {name: options.pop(name) for name in known & options.keys()}
        settings: Any = make_settings(row.Options, options)
        if (lines is None) != isinstance(row, ModelView):
            raise UsageError(f"lines: {'are missing' if lines is None else 'the view reads none'}")
        rank = {"n_best": settings.rank} if "rank" in own else {}
        opened = self._searching(row.tasks, {**rank, **drop_none(search)})
        if isinstance(row, ModelView):
            with self._lock:
                records = iter([row.read(subject_of(opened.directory), settings)])
        else:
            records = self._inspect(opened, row, settings, cast("Lines", lines), targets)
        return Results(
            records,
            partial(framed_view, row, options=settings),
            partial(printed_view, row, options=settings),
        )

    @check_arguments
    def heads(
        self,
        lines: Lines,
        *,
        targets: Iterable[str] | None = None,
        heads: Sequence[str] = (),
        mode: CaptureMode = "forced",
        rank: int = 1,
        weights: WeightingName | None = None,
        **search: Unpack[DecodingOverrides],
    ) -> Results[HeadsRecord]:
        """Captures the attention heads on sentences and their translations.

        Maps are computed in float32; a model of another precision is opened in it once. A notebook
        shows the page of the heads. Other arguments are settings of the search, as in
        `tformer.load`.

        Args:
            lines: source sentences, or images as for `classify`.
            targets: a target for each line, looked at instead of the model's translation.
            heads: which heads, such as "cross.last"; none means all.
            mode: "forced" or "live".
            rank: which of the translations, 1 the best.
            weights: kind of the maps' numbers; None: attention weights.

        Returns:
            A record a line or sentence, as of `inspect_heads`, which has the details.

        Raises:
            UsageError: if `heads` select nothing or a setting is impossible.
            DataError: while it is read, if a line is too long or the sides differ in length.
        """
        capture = {"heads": heads, "mode": mode, "rank": rank, "weights": weights}
        return self.inspect("heads", lines, targets=targets, **capture, **search)

    @check_arguments
    def flow(
        self,
        lines: Lines,
        *,
        targets: Iterable[str] | None = None,
        rank: int = 1,
        beam_size: int | None = None,
        length_penalty: float | None = None,
    ) -> Results[FlowRecord]:
        """Measures how much source and prefix contribute to each token, by ALTI+ and by rollout.

        Args:
            lines: source sentences, or images as for `classify`.
            targets: a target for each line, looked at instead of the model's translation.
            rank: which of the translations, 1 the best.
            beam_size: that of this call's search.
            length_penalty: that of this call's search.

        Raises:
            UsageError: if a setting is impossible, or the model has no such shares.
            DataError: while it is read, if a line is too long or the sides differ in length.
        """
        search = {"beam_size": beam_size, "length_penalty": length_penalty}
        return self.inspect("flow", lines, targets=targets, rank=rank, **search)

    @check_arguments
    def logits(
        self,
        lines: Lines,
        *,
        targets: Iterable[str] | None = None,
        top_k: int = 5,
        lens: bool = False,
        beam_size: int | None = None,
        length_penalty: float | None = None,
    ) -> Results[LogitsRecord]:
        """Reads what else the model could have predicted at each position.

        Args:
            lines: source sentences, or images as for `classify`.
            targets: a target for each line, looked at instead of the model's translation.
            top_k: tokens of each position.
            lens: whether to read each layer as if it were the last (logit lens).
            beam_size: that of this call's search.
            length_penalty: that of this call's search.

        Raises:
            UsageError: if a setting is impossible.
            DataError: while it is read, if a line is too long or the sides differ in length.
        """
        search = {"beam_size": beam_size, "length_penalty": length_penalty}
        return self.inspect("logits", lines, targets=targets, top_k=top_k, lens=lens, **search)

    @check_arguments
    def report(
        self,
        lines: Lines,
        *,
        targets: Iterable[str] | None = None,
        heads: Sequence[str] = (),
        steps: Sequence[str] = (),
        mode: CaptureMode = "forced",
        rank: int = 1,
        ablation: bool = True,
        beam_size: int | None = None,
        length_penalty: float | None = None,
    ) -> Report:
        """Inspects a few sentences in every way; `html` of the result is the page of it.

        Args:
            lines: source sentences, or images as for `classify`.
            targets: a target for each line, looked at instead of the model's translation.
            heads: which heads, such as "cross.last"; none means all.
            steps: heads to work through for a token, such as "cross.0.1:word".
            mode: "forced" or "live".
            rank: which of the translations, 1 the best.
            ablation: whether to measure each sentence's loss without each head.
            beam_size: that of this call's search.
            length_penalty: that of this call's search.

        Raises:
            UsageError: if `heads` or `steps` select nothing or a setting is impossible.
            DataError: if there is no line to show, or one is too long.
        """
        from tformer_cli.inspect.view import ReportOptions
        from tformer_cli.inspect.views import REPORT
        from tformer_cli.inspect.views.heads import VIEW

        chosen = {"heads": heads, "step": steps, "mode": mode, "rank": rank, "ablation": ablation}
        options = make_settings(ReportOptions, chosen)
        settings = {"n_best": rank, "beam_size": beam_size, "length_penalty": length_penalty}
        opened = self._searching(VIEW.tasks, settings)
        inspect_report: Callable[..., Report] = load_place(REPORT)
        texts = list(read_lines_or_names(lines, opened.directory))  # outside the lock
        with self._lock:
            return inspect_report(opened, texts, targets=targets, options=options)

    @check_arguments
    def align(
        self,
        lines: Iterable[str],
        targets: Iterable[str] | None = None,
        *,
        heads: Sequence[str] = (),
        convention: Convention | None = None,
        threshold: float | None = None,
        eos: Literal["drop", "keep"] = "drop",
        buffer_lines: int = BUFFER_LINES,
    ) -> Results[AlignedPair]:
        """Aligns the words of sentences with those of their translations, or of given targets.

        Args:
            lines: source sentences.
            targets: a target for each line; None: the model translates.
            heads: heads of cross-attention; none means those that the model stores.
            convention: which row of a map belongs to a token, "naive" or "shift"; None: stored.
            threshold: the weight from which on words are linked; None: only the largest links.
            eos: "keep" to leave words without a link that attend most to the end of the sentence.
            buffer_lines: lines that are batched together; 1 answers line by line.

        Raises:
            UsageError: if `heads` select others than those of cross-attention.
            ArtifactError: if the model does not translate.
            DataError: while it is read, if the sides differ in length.
        """
        from tformer_cli.inspect.alignment import LinkRule
        from tformer_cli.inspect.jobs.align import Aligner, align_pairs, read_pairs

        if threshold is not None:
            check_number("threshold", threshold, float, between(0, 1))
        opened = self._searching(TRANSLATORS, {})
        rule = LinkRule(threshold=threshold, keeps_eos=eos == "keep")
        aligner = Aligner(opened.directory, heads, convention, rule)
        translator = aligner.listening(opened.translator)

        def translate_and_align(lines: list[str], first: int) -> list[AlignedPair]:
            translations = translator.translate(lines, first)
            return [
                AlignedPair(
                    index=t.index, source=t.source, target=t.text, links=_links(alignments[0].links)
                )
                for t, alignments in zip(
                    translations, aligner.align_translations(translations), strict=True
                )
            ]

        def align_buffer(pairs: list[PairTexts], _first: int) -> list[AlignedPair]:
            links_of_pairs = align_pairs(aligner, pairs, buffer_lines=len(pairs))
            return [
                AlignedPair(index=p.index, source=p.source, target=p.target, links=_links(links))
                for p, links in zip(pairs, links_of_pairs, strict=True)
            ]

        sources = given_lines(lines)
        if targets is None:
            return self._compute(translate_and_align, sources, buffer_lines)
        pairs = read_pairs(sources, given_lines(targets, "targets"))
        return self._compute(align_buffer, pairs, buffer_lines)

    def _inspect(
        self,
        opened: Opened,
        view: SentenceView[Any],
        options: object,
        lines: Lines,
        targets: Iterable[str] | None,
    ) -> Iterator[Any]:
        """Captures maps of sentences, once they are asked for, and reads them."""
        from tformer_cli.inspect.jobs.views import sentence_reader

        with self._lock:
            inspector, read = sentence_reader(view, opened, options)
        pairs = inspector.pairs(read_lines_or_names(lines, opened.directory), targets)

        def records() -> Iterator[Any]:
            for index, (line, target) in enumerate(pairs):
                with self._computing():
                    record = read(inspector.inspect_line(index, line, target))
                yield record

        return records()

    def _compute(
        self,
        compute: Callable[[list[L], int], list[R]],
        lines: Iterator[L],
        buffer_lines: int,
    ) -> Results[R]:
        """Computes the results of lines, a buffer at a time, once they are asked for."""
        if problem := type_problem(buffer_lines, int):
            raise TypeError(f"buffer_lines: {problem}")
        if buffer_lines < 1:
            raise ValueError(f"buffer_lines: must be at least 1, but is {buffer_lines}")

        def results() -> Iterator[R]:
            first = 0
            while buffer := list(islice(lines, buffer_lines)):
                with self._computing():
                    results = compute(buffer, first)
                yield from results
                first += len(buffer)

        return Results(results())

    @contextmanager
    def _computing(self) -> Iterator[None]:
        with self._lock, in_python():
            _ = self.opened  # it may have been closed
            yield

    def _searching(self, tasks: Container[TaskKind], settings: Mapping[str, Any]) -> Opened:
        """Opens the model for inspection, with its own search settings."""
        from tformer_cli.inspect.views.heads import VIEW

        if self._kind.name not in tasks:
            raise self._other_task()
        with self._lock:
            if self._for_inspection is None:
                options: dict[str, Any] = {**self._options, "precision": "float32"}
                options["engine"] = "tformer"
                path = self.opened.directory.path
                self._for_inspection = open_model(path, inspected=VIEW.tasks, **options)
            opened = self._for_inspection
        return replace(opened, search=self._translator(opened, settings))

    def _translator(self, opened: Opened, search: Mapping[str, Any]) -> Translator:
        """Returns the translator of one call, with the call's settings."""
        search = drop_none(search)
        if not search:
            return opened.translator
        config = overridden(opened.translator.config, self._options.get("tell"), **search)
        return opened.translator.with_config(config)

    def _other_task(self) -> ArtifactError:
        what = COMMANDS[self._kind.name].partition(";")[0]
        path = self.opened.directory.path
        return ArtifactError(f"{as_named(str(path))}: {what}; call its {self._methods_in_words()}")

    def _methods_in_words(self) -> str:
        # Only pairs are scored by a method: labels and texts are what `tformer score` takes, too
        scores = self._kind.measured_by == "translations"
        verbs = (f"{verb}()" for verb in self._kind.verbs if verb != "score" or scores)
        return f"{', '.join(verbs)} or heads()"

    @property
    def _kind(self) -> Kind:
        return kind_of(self.opened.directory.config)


def read_lines_or_names(lines: Lines, directory: ModelDirectory) -> Iterator[str]:
    """Returns the input lines; for images, names that stand for them."""
    if not reads_names(directory.config):
        return given_lines(cast("Iterable[str]", lines))
    from tformer_cli.text.images.named import name_of_image

    check_lines(lines, "images")
    return (name_of_image(image, f"images[{number}]") for number, image in enumerate(lines))


def _links(links: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(links))
