"""Translation models: a sentence in, its translation out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tformer_cli.kinds.kind import Kind
from tformer_cli.kinds.training import Examples, Training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.kinds.opening import Opened
    from tformer_cli.kinds.serving import Serving
    from tformer_cli.kinds.training import HeldOut
    from tformer_cli.model.base import Model
    from tformer_cli.recipe import Recipe
    from tformer_cli.text.corpora import SentencePair
    from tformer_cli.trainer.validation import Scored, Scorer


class Translation(Training):
    """Sentences to sentences, by an encoder-decoder model."""

    examples = Examples("pair", "source", "translation", "reference", are_translated=True)

    def texts(self, pair: SentencePair) -> Iterable[str]:
        return pair  # a vocabulary is joint

    def scorer(self, held: HeldOut) -> Scorer:
        """Returns a function that scores translations besides the loss."""
        from tformer_cli.kinds.opening import search_engines
        from tformer_cli.metrics.scores import bleu, chrf
        from tformer_cli.search.translator import Translator
        from tformer_cli.trainer.validation import Scored, mean_loss, perplexity

        recipe, pairs = held.recipe, held.pairs
        decoding = replace(recipe.decoding, beam_size=recipe.validation.beam_size, n_best=1)
        # Made once: they keep what they have packed of a model's weights
        engines = search_engines("tformer", held.device, held.precision)

        def score(model: Model, sample: int, before_batch: Callable[[], None]) -> Scored:
            loss = mean_loss(model, pairs, held.tokenizer, held.precision, before_batch)
            translator = Translator(
                model, held.tokenizer, decoding, engines=engines, before_batch=before_batch
            )
            translations = translator.translate([pair.source for pair in pairs])
            texts = [translation.hypotheses[0].text for translation in translations]
            references = [[pair.target for pair in pairs]]
            # As text, by the functions of `tformer evaluate`: users will measure these scores
            by_name = {"bleu": bleu(texts, references), "chrf": chrf(texts, references)}
            number = sample % len(pairs)
            return Scored(
                scores={
                    "loss": loss,
                    "perplexity": perplexity(loss),
                    **{name: one.value for name, one in by_name.items()},
                },
                signatures={name: one.signature for name, one in by_name.items()},
                sample=(pairs[number].source, texts[number], pairs[number].target),
            )

        return score

    def doubts(self, recipe: Recipe) -> Iterable[str]:
        """Returns doubts about the corpora, languages and lengths."""
        from tformer_cli.quality.doubts import doubts

        return doubts(recipe.data)


class Translate(Kind):
    """Encoder and decoder."""

    name = "translate"
    verbs = ("translate", "score")
    methods = ("translate", "score")
    searches = True
    training = Translation()

    def serving(self, opened: Opened, verb: Verb) -> Serving:  # noqa: ARG002 - the only one
        from tformer_cli.kinds.serving import Translating

        return Translating(opened)


KIND = Translate()
