"""A model that is loaded once and called many times, from any number of threads."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, cast

from tformer_cli.api.calls import as_streams, check_arguments, drop_none, log_note
from tformer_cli.api.inspecting import InspectedModel, read_lines_or_names
from tformer_cli.api.results import Results, TokenizedText
from tformer_cli.artifacts.config_file import CONFIG, MODELS, read_config
from tformer_cli.errors import UsageError
from tformer_cli.kinds import kind_named, reads_names
from tformer_cli.kinds.kind import MACHINE
from tformer_cli.kinds.lines.embed import checked_pooling
from tformer_cli.kinds.lines.fill import TOP
from tformer_cli.kinds.lines.generate import BUFFER_PROMPTS
from tformer_cli.kinds.lines.job import aligned_pairs, usual_buffer
from tformer_cli.kinds.lines.score import PAIRS_AT_ONCE, score_pairs
from tformer_cli.kinds.opening import open_model, resolve_directory
from tformer_cli.search.opening import generation_config, split_options
from tformer_cli.search.translator import BUFFER_LINES
from tformer_cli.text.lines import check_lines, given_lines
from tformer_cli.wording import did_you_mean, given_name, suggestions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.evaluate.evaluate import Evaluation, LabelEvaluation, TextEvaluation
    from tformer_cli.inspect.doubt import Doubter
    from tformer_cli.kinds.kind import LineComputation
    from tformer_cli.kinds.lines.classify import LabeledText
    from tformer_cli.kinds.lines.embed import EmbeddedText
    from tformer_cli.kinds.lines.fill import FilledText
    from tformer_cli.kinds.lines.job import TooLong
    from tformer_cli.kinds.lines.score import ScoredPair
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.kinds.tag import TaggedText
    from tformer_cli.model.methods import Pooling
    from tformer_cli.search.generator import Generation
    from tformer_cli.search.keywords import DecodingOverrides, TranslatorOptions
    from tformer_cli.search.translator import Translation

R = TypeVar("R")
OTHER_NAMES = {
    **dict.fromkeys(("cpu", "cuda", "to"), 'give device="cpu" or "cuda" to tformer.load'),
    **dict.fromkeys(("bfloat16", "float", "half"), "give precision to tformer.load"),
    **dict.fromkeys(("eval", "unload_model"), "there is no need; use `with` to close it"),
    **dict.fromkeys(("modules", "parameters", "state_dict"), "see its opened.directory.model"),
    "config": "see its opened.config",
    "device": "see its opened.place",
    "from_pretrained": "call tformer.load",
    "save_pretrained": "run `tformer export`",
    "tokenizer": "call its tokenize(), or see its opened.directory.tokenizer",
}
"""Attributes of transformers and CTranslate2 that do not compute, and what stands for them here."""


def load_model(model: Path | str, **options: Unpack[TranslatorOptions]) -> LoadedModel:
    """Opens a model; see `tformer_cli.load`."""
    path = resolve_directory(model, split_options(options)[0])
    if not (path / CONFIG).is_file():
        return LoadedModel(open_model(path, **options), options)  # raises, and says why
    kind = kind_named(read_config(path).task)
    if not kind.searches:
        options = cast(
            "TranslatorOptions",
            {name: value for name, value in options.items() if value is not None},
        )
        for name in options:
            if name not in MACHINE:
                raise UsageError(f"{name}: is not a setting of {MODELS[kind.name]}; omit it")
    return LoadedModel(open_model(path, kind.verbs[0], **options), options)


class LoadedModel(InspectedModel):
    """A model to call for the task that it was trained for.

    A translation model translates and scores, a classifier classifies, a language model generates,
    an encoder embeds, and fills gaps if it was trained to. Methods of another task raise an
    `ArtifactError` that says what the model is.

    Methods check their settings at once and return `Results`, which compute when they are read, and
    read no more than a buffer ahead. Several threads may use the same model: it computes for one of
    them at a time, a buffer or a sentence, and each gets what it would get alone. The results of a
    call belong to one thread. A process may be forked meanwhile: that waits for the buffer that is
    being computed, and the model works in both.

    In a `with` statement the model is closed at its end. It is pickled, and copied, as its path and
    its settings: another process loads it again.
    """

    def __init__(self, opened: Opened, options: TranslatorOptions | None = None) -> None:
        """Takes an opened model; see `InspectedModel`."""
        super().__init__(opened, options)
        self._computations: dict[Verb, LineComputation] = {}
        self._doubter: Doubter | None = None
        path, options_again = opened.directory.path, dict[str, Any](self._options)
        # A foreign model's place in the cache does not tell its languages, its name does
        model = _absolute(given_name(path) or path)
        for name in ("adapter", "shortlist", "ensemble"):
            if paths := options_again.get(name):
                is_one = name != "ensemble"
                options_again[name] = _absolute(paths) if is_one else [*map(_absolute, paths)]
        self._load_again = partial(load_model, model, **options_again)

    def close(self) -> None:
        """Frees the weights and what was made of them; results that are not read yet are lost."""
        with self._lock:
            self._opened = self._for_inspection = self._doubter = None
            self._computations.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[[], LoadedModel], tuple[()]]:
        _ = self.opened  # not of a closed model
        return self._load_again, ()

    if not TYPE_CHECKING:  # else any name would pass a type checker

        def __getattr__(self, name: str) -> object:
            if name.startswith("_"):
                raise AttributeError(name)
            guess = OTHER_NAMES.get(name) or did_you_mean(suggestions(name, dir(self)))
            guess = guess or f"call its {self._methods_in_words()}"
            raise AttributeError(f"{name}: is not an attribute of a loaded model; {guess}")

        def __call__(self, *_: object, **_options: object) -> object:
            """Says which methods to call."""
            raise TypeError(f"a loaded model is no function; call its {self._methods_in_words()}")

    @check_arguments
    def translate(
        self,
        lines: Iterable[str],
        *,
        buffer_lines: int | None = None,
        doubt: bool = False,
        **search: Unpack[DecodingOverrides],
    ) -> Results[Translation]:
        """Translates lines as they come, in order, one translation a line.

        Other arguments are settings of the search, for this call, as in `tformer.load`.

        Args:
            lines: source sentences; a line end in one ends a sentence, and becomes a space.
            buffer_lines: lines that are batched together; 1 answers line by line; None: as many
                as suit the device.
            doubt: whether translations say how probably they are wrong, as their `doubt`; for a
                model that `train` or `tformer calibrate` has calibrated.

        Raises:
            TypeError: if the lines are one string, or hold something else.
            ValueError: if `buffer_lines` is not positive.
            UsageError: if a setting is impossible.
            ArtifactError: if doubt is asked for and not calibrated.
        """
        opened = self._opened_for("translate")
        translator = self._translator(opened, search)
        size = translator.usual_buffer if buffer_lines is None else buffer_lines
        if not doubt:
            return self._compute(translator.translate, given_lines(lines), size)
        doubter = self._doubter_of()
        if different := doubter.difference(opened, translator):
            log_note(different, "warning")
        return self._compute(
            lambda texts, first: doubter.add_doubts(translator.translate(texts, first)),
            given_lines(lines),
            size,
        )

    def _doubter_of(self) -> Doubter:
        """Returns the estimator of doubt for the translations of one call."""
        if self._options.get("adapter") is not None:
            raise UsageError(
                "doubt: was calibrated without the adapter; calibrate and load the output of "
                "`tformer export --adapter`"
            )
        if self._doubter is None:
            from tformer_cli.inspect.doubt import Doubter

            self._doubter = Doubter(self.opened.directory)
        return self._doubter

    @check_arguments
    def score(self, sources: Iterable[str], targets: Iterable[str]) -> Results[ScoredPair]:
        """Scores given translations by forced decoding.

        Args:
            sources: source sentences.
            targets: a translation of each.

        Raises:
            TypeError: if a side is one string, or holds something else.
            DataError: while it is read, if one side has more lines.
        """
        opened = self._opened_for("translate")
        pairs = aligned_pairs(
            given_lines(sources, "sources"),
            given_lines(targets, "targets"),
            ("sources", "targets"),
        )
        return self._compute(partial(score_pairs, opened), pairs, PAIRS_AT_ONCE)

    @check_arguments
    def classify(
        self,
        lines: Iterable[str | Path | NDArray[np.uint8]],
        *,
        buffer_lines: int | None = None,
        too_long: TooLong = "truncate",
    ) -> Results[LabeledText]:
        """Labels texts or images as they come, in order; a blank one gets no label.

        Args:
            lines: the texts, or images: names as for the command, paths, or arrays (H, W) or
                (H, W, C) of bytes.
            buffer_lines: lines that are batched together; 1 answers line by line; None: as many
                as usual, of large images only some.
            too_long: what becomes of texts longer than the model takes.

        Raises:
            TypeError: if the lines are one string, or hold something else.
            ValueError: if `buffer_lines` is not positive.
            ArtifactError: if the model is no classifier.
            DataError: while it is read, if a text is too long and `too_long` is "error", or an
                image cannot be read.
        """
        size = usual_buffer(self.opened.directory) if buffer_lines is None else buffer_lines
        return self._compute_lines("classify", lines, size, too_long=too_long)

    @check_arguments
    def tag(self, lines: Iterable[str], *, buffer_lines: int = BUFFER_LINES) -> Results[TaggedText]:
        """Labels the words of texts as they come, in order; a blank text has none.

        Args:
            lines: the texts, whose words white space separates.
            buffer_lines: lines that are batched together; 1 answers line by line.

        Raises:
            TypeError: if the lines are one string, or hold something else.
            ValueError: if `buffer_lines` is not positive.
            ArtifactError: if the model is no tagger.
        """
        return self._compute_lines("tag", lines, buffer_lines)

    @check_arguments
    def embed(
        self,
        lines: Iterable[str | Path | NDArray[np.uint8]],
        *,
        buffer_lines: int | None = None,
        pooling: Pooling | None = None,
        unit_length: bool | None = None,
        too_long: TooLong = "truncate",
    ) -> Results[EmbeddedText]:
        """Turns texts or images into vectors as they come, in order; a blank one has none.

        Args:
            lines: the texts, or images as for `classify`.
            buffer_lines: lines that are batched together; 1 answers line by line; None: as many
                as usual, of large images only some.
            pooling: "mean", "first", or of images "first-and-mean"; None: that of the model's
                settings.
            unit_length: whether vectors are divided by their length; None: see `pooling`.
            too_long: what becomes of texts longer than the model takes.

        Raises:
            TypeError: if the lines are one string, or hold something else.
            ValueError: if `buffer_lines` is not positive.
            ArtifactError: if the model is not encoder-only.
            UsageError: if it has not what is to be pooled.
            DataError: while it is read, if a text is too long and `too_long` is "error", or an
                image cannot be read.
        """
        directory = self._opened_for("embed").directory
        settings = {
            "pooling": checked_pooling(directory.config, pooling),
            "unit_length": unit_length,
            "too_long": too_long,
        }
        size = usual_buffer(directory) if buffer_lines is None else buffer_lines
        return self._compute_lines("embed", lines, size, **settings)

    @check_arguments
    def fill(
        self,
        lines: Iterable[str],
        *,
        buffer_lines: int = BUFFER_LINES,
        top: int = TOP,
        too_long: TooLong = "truncate",
    ) -> Results[FilledText]:
        """Fills the gaps of texts as they come, in order; a gap is ``[MASK]`` or ``<mask>``.

        Args:
            lines: the texts.
            buffer_lines: lines that are batched together; 1 answers line by line.
            top: candidates of each gap; 0: the whole vocabulary.
            too_long: what becomes of texts longer than the model takes.

        Raises:
            TypeError: if the lines are one string, or hold something else.
            ValueError: if `buffer_lines` is not positive.
            ArtifactError: if the model is no masked language model.
            DataError: while it is read, if a text is too long and `too_long` is "error".
        """
        return self._compute_lines("fill", lines, buffer_lines, top=top, too_long=too_long)

    @check_arguments
    def generate(
        self,
        prompts: Iterable[str] = ("",),
        *,
        stops: Sequence[str] = (),
        buffer_prompts: int = BUFFER_PROMPTS,
        **search: Unpack[DecodingOverrides],
    ) -> Results[Generation]:
        """Continues prompts as they come, in order; an empty one is the beginning of a text.

        Other arguments are settings of the search or sampling, for this call, as in `tformer.load`.

        Args:
            prompts: the prompts.
            stops: texts that end what is written.
            buffer_prompts: prompts that are batched together; 1 answers one by one.

        Raises:
            TypeError: if the prompts are one string, or hold something else.
            ValueError: if `buffer_prompts` is not positive.
            ArtifactError: if the model is no language model.
            UsageError: if a setting is impossible; while it is read, if a prompt is empty and the
                model knows no beginning of texts.
        """
        generator = self._opened_for("generate").generator
        if drop_none(search) or stops:
            config = generation_config(generator.config, self._options.get("tell"), **search)
            generator = generator.with_config(config, stops)
        return self._compute(
            lambda texts, first: generator.generate(texts, range(first, first + len(texts))),
            given_lines(prompts, "prompts"),
            buffer_prompts,
        )

    @check_arguments
    def evaluate(
        self,
        lines: Iterable[str | Path | NDArray[np.uint8]],
        references: Iterable[str] | Iterable[Iterable[str]] | None = None,
        *,
        lowercase: bool = False,
        tokenize: str = "13a",
        **search: Unpack[DecodingOverrides],
    ) -> Evaluation | LabelEvaluation | TextEvaluation[Any]:
        """Evaluates the model on texts with correct answers, as `tformer evaluate` does.

        Translations get BLEU, chrF, TER and the loss of the first reference, labels accuracy and
        F1, the text of a language model its loss. Other arguments are settings of the search, as in
        `tformer.load`.

        Args:
            lines: source sentences, or texts or images as for `classify`.
            references: a translation or a label of each, or several lists of translations; None
                for a model that predicts the texts themselves.
            lowercase: whether BLEU and chrF ignore case; TER always does.
            tokenize: sacreBLEU's tokenizer for BLEU.

        Raises:
            TypeError: if texts are not lists of strings.
            DataError: if there are more or fewer references.
            UsageError: if there are none, or a setting is impossible.
        """
        if self._kind.measured_by != "translations":
            if unknown := next(iter(drop_none(search)), None):
                raise UsageError(f"{unknown}: only for translations; omit it")
            return self._measure(
                list(read_lines_or_names(lines, self.opened.directory)), references
            )
        from tformer_cli.evaluate.evaluate import evaluate_model

        opened = self._opened_for("translate")
        opened = replace(
            opened, search=self._translator(opened, {"n_best": 1, **drop_none(search)})
        )
        texts = list(given_lines(cast("Iterable[str]", lines)))
        streams = as_streams(_require(references))
        with self._lock:
            return evaluate_model(opened, texts, streams, lowercase=lowercase, tokenize=tokenize)

    def _measure(
        self, texts: Sequence[str], references: Iterable[Any] | None
    ) -> LabelEvaluation | TextEvaluation[Any]:
        """Evaluates a model that does not translate."""
        from tformer_cli.evaluate import evaluate as work

        measured_by, opened = self._kind.measured_by, self.opened
        if measured_by != "labels" and references is not None:
            raise UsageError("references: the model predicts the texts themselves; omit them")
        with self._lock:
            if measured_by == "labels":
                check_lines(_require(references), "references")
                return work.evaluate_classifier(opened, texts, list(_require(references)))
            if measured_by == "text":
                return work.evaluate_texts(opened, texts)
            # The kernels do not give the probabilities of hidden tokens
            opened = open_model(opened.directory.path, "fill", by_kernels=False, **self._options)
            return work.evaluate_masked(opened, texts)

    @check_arguments
    def tokenize(
        self,
        lines: Iterable[str],
        *,
        side: Literal["source", "target"] = "source",
        buffer_lines: int = BUFFER_LINES,
    ) -> Results[TokenizedText]:
        """Tokenizes texts as the model reads or writes them, without special tokens.

        Args:
            lines: the texts.
            side: the language, of a model that has a tokenizer for each.
            buffer_lines: lines that are cut together; 1 answers line by line.

        Raises:
            TypeError: if the lines are one string, or hold something else.
            UsageError: if the model reads images.
        """
        if reads_names(self.opened.directory.config):
            raise UsageError("lines: the model reads images, which have no tokens")
        tokenizer = self.opened.directory.tokenizer.side(side)

        def tokenize_buffer(texts: list[str], first: int) -> list[TokenizedText]:
            return [
                TokenizedText(index, text, tuple(tokenizer.pieces(ids)), tuple(ids))
                for index, (text, ids) in enumerate(
                    zip(texts, tokenizer.encode_batch(texts), strict=True), first
                )
            ]

        return self._compute(tokenize_buffer, given_lines(lines), buffer_lines)

    def _compute_lines(
        self,
        verb: Verb,
        lines: Iterable[str | Path | NDArray[np.uint8]],
        buffer_lines: int,
        **settings: Any,  # noqa: ANN401 - of each verb
    ) -> Results[Any]:
        opened = self._opened_for(verb)
        if verb not in self._computations:
            self._computations[verb] = self._kind.line_computation(opened, verb)
        compute, _ = self._computations[verb]
        return self._compute(
            lambda texts, first: compute(texts, first_index=first, **settings),
            read_lines_or_names(lines, opened.directory),
            buffer_lines,
        )

    def _opened_for(self, verb: Verb) -> Opened:
        """The opened model, if its kind supports a verb."""
        if verb not in self._kind.verbs:
            raise self._other_task()
        return self.opened


def _absolute(name: Path | str) -> str:
    """Returns a path from everywhere, or a name that is no path."""
    return str(Path(name).absolute()) if Path(name).exists() else str(name)


def _require(references: R | None) -> R:
    if references is None:
        raise UsageError("references: are missing; give the correct answer for each line")
    return references
