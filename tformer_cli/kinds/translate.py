"""Translation models: a sentence in, its translation out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tformer_cli.artifacts.config_file import FREQUENCIES, SHORTLIST, task_kind
from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.kinds.kind import Examples, Kind, Training
from tformer_cli.sockets import load_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.kinds.kind import HeldOut
    from tformer_cli.kinds.serving import Serving
    from tformer_cli.kinds.stored_model import Opened, Opening
    from tformer_cli.model.base import Model
    from tformer_cli.recipe import Recipe
    from tformer_cli.search.config import SentenceRule
    from tformer_cli.search.engine import Shortlist
    from tformer_cli.search.opening import OpeningSettings
    from tformer_cli.text.batching import Divide
    from tformer_cli.text.corpora import SentencePair
    from tformer_cli.trainer.validation import Scored, Scorer


NO_SHORTLIST = "none"
"""Value of `--shortlist` that disables the model's own."""
# Corpora of sentences have a tenth at most, as translators join and divide; documents have most
MOST_SEVERAL = 0.2
"""Share of training lines with several sentences up to which lines count as sentences."""
SENTENCE_KINDS = ("Bergamot", "Marian", "Argos", "Hugging Face Marian", "Hugging Face M2M-100")
"""Beginnings of the kinds of imported models that are trained on sentences."""


class Translation(Training):
    """Sentences to sentences, by an encoder-decoder model."""

    examples = Examples("pair", "source", "translation", "reference", are_translated=True)

    def texts(self, pair: SentencePair) -> Iterable[str]:
        return pair  # a vocabulary is joint

    def scorer(self, held: HeldOut) -> Scorer:
        """Returns a function that scores translations, in addition to the loss."""
        from tformer_cli.kinds.opening import search_engines
        from tformer_cli.metrics.scores import bleu, chrf
        from tformer_cli.search.hypothesis import length_conflict, longest_source
        from tformer_cli.search.translator import Translator
        from tformer_cli.trainer.validation import Scored, mean_loss, perplexity

        recipe, pairs = held.recipe, held.pairs
        decoding = replace(recipe.decoding, beam_size=recipe.validation.beam_size, n_best=1)
        # Now, not at the first validation, which may be hours away
        encoded = held.tokenizer.source.encode_batch([pair.source for pair in pairs])
        most = recipe.model.max_positions
        for n_tokens in sorted({min(len(ids), longest_source(most)) for ids in encoded if ids}):
            if conflict := length_conflict(n_tokens, decoding, most):
                raise DataError.of(
                    "data.valid: has a sentence of {} tokens: {}", n_tokens, conflict
                )
        # Made once: they keep what they have packed of a model's weights
        engines = search_engines("tformer", held.device, held.precision)

        def score(
            model: Model, sample: int, before_batch: Callable[[], None], divide: Divide
        ) -> Scored:
            loss = mean_loss(model, pairs, held.tokenizer, held.precision, before_batch, divide)
            translator = Translator(
                model, held.tokenizer, decoding, engines=engines, before_batch=before_batch
            )
            texts = divide(
                [pair.source for pair in pairs],
                lambda lines: [
                    translation.hypotheses[0].text for translation in translator.translate(lines)
                ],
            )
            references = [[pair.target for pair in pairs]]
            # As text, by the functions of `tformer evaluate`: users will measure these scores
            by_name = {"bleu": bleu(texts, references), "chrf": chrf(texts, references)}
            number = sample % len(pairs)
            return Scored(
                scores={
                    "loss": loss,
                    "perplexity": perplexity(loss),
                    **{name: score.value for name, score in by_name.items()},
                },
                signatures={name: score.signature for name, score in by_name.items()},
                sample=(pairs[number].source, texts[number], pairs[number].target),
            )

        return score

    def doubts(self, recipe: Recipe) -> Iterable[str]:
        """Returns doubts about the corpora, languages and lengths."""
        doubts: Iterable[str] = load_place(
            "tformer_cli.plugins.corpora_tools.quality.doubts:doubts"
        )(recipe.data)
        return doubts


def opened_translator(opening: Opening) -> Opened:
    """Connects a model with a translator, which inspection takes of any kind."""
    from tformer_cli.kinds.opening import for_languages, prepare_search
    from tformer_cli.search.opening import overridden
    from tformer_cli.search.torch_engine import TorchEngine
    from tformer_cli.search.translator import Translator

    settings = opening.settings
    opening = opening._replace(directory=for_languages(opening.directory, settings))
    decoding = overridden(opening.directory.decoding, settings.tell, **opening.overrides)
    opened, model, engines = prepare_search(opening, decoding)
    directory = opened.directory
    translator = Translator(
        model,
        directory.tokenizer,
        decoding,
        engines=engines,
        too_long=settings.too_long,
        split_sentences=_splitter(directory, settings),
        seed=settings.seed,
        banned=settings.banned,
        # Forced decoding by torch knows every model, even where `--engine` names the kernels
        scorers=[TorchEngine(opened.place, opened.products)],
        shortlist=chosen_shortlist(directory, settings.shortlist),
        seen_words=_seen_words(directory.path),
    )
    if not directory.config.is_encoder_only:  # which never searches
        translator.check()
    return replace(opened, search=translator)


def _seen_words(path: Path) -> frozenset[str] | None:
    if not (path / FREQUENCIES).exists():  # of an import: the module need not be loaded
        return None
    from tformer_cli.artifacts.shortlist_file import load_seen_words

    return load_seen_words(path)


def chosen_shortlist(directory: ModelDirectory, option: str | None) -> Shortlist | None:
    """Reads the shortlist of a path, or the model's own if none is named; "none" has none."""
    path = directory.path / SHORTLIST if option is None else Path(option)
    if option == NO_SHORTLIST or (option is None and not path.exists()):
        return None
    if option is not None and not path.exists():
        raise ArtifactError.of("{shortlist}: {}: no such file; name one, or none", path)
    from tformer_cli.artifacts.shortlist_file import read_shortlist

    n_targets = directory.tokenizer.vocab_size
    # 0: sources and targets share a vocabulary
    return read_shortlist(path, directory.config.source_vocab_size or n_targets, n_targets)


def _splitter(
    directory: ModelDirectory, settings: OpeningSettings
) -> Callable[[str], list[str]] | None:
    """Returns the sentence splitter for the model's source language; None for no splitting."""
    by_default: SentenceRule = "rule" if trained_on_sentences(directory) else "none"
    rule = settings.split_sentences or by_default
    if rule == "none":
        return None
    from tformer_cli.search.sentences import sentence_splitter

    return sentence_splitter(rule, directory.info.source_language)


def trained_on_sentences(directory: ModelDirectory) -> bool:
    """Returns whether a model drops text of lines with several sentences, as far as is known."""
    info = directory.info
    if task_kind(directory.config) != "translate":
        return False
    if info.several_sentences is not None:
        return info.several_sentences <= MOST_SEVERAL
    if info.origin is not None:
        # An import stores no share
        return info.origin.kind.startswith(SENTENCE_KINDS)
    # Models from before the share was stored: the built-in corpus is known to have sentences
    return _is_of_built_in_corpus(directory.path)


def _is_of_built_in_corpus(run: Path) -> bool:
    import tomllib

    from tformer_cli.files.regular_file import read_regular

    try:
        recipe = tomllib.loads(read_regular(run / "recipe.toml", 1 << 20).decode())
        corpora = recipe["data"]["train"]
        return bool(corpora) and all(corpus["built_in"] for corpus in corpora)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False  # nothing else needs the recipe


class Translate(Kind):
    """Encoder and decoder."""

    name = "translate"
    verbs = ("translate", "score")
    searches = True
    training = Translation()

    def open_model(self, opening: Opening) -> Opened:
        return opened_translator(opening)

    def serving(self, opened: Opened, verb: Verb) -> Serving:  # noqa: ARG002 - the only one
        from tformer_cli.kinds.serving import Translating

        return Translating(opened)


KIND = Translate()
