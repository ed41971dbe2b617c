"""Language models: a prompt in, its continuation out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tformer_cli.kinds.kind import Examples, Kind
from tformer_cli.kinds.texts import TextModeling
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.kinds.kind import HeldOut, Progress
    from tformer_cli.kinds.serving import Serving
    from tformer_cli.kinds.stored_model import Opened, Opening
    from tformer_cli.recipe import Recipe
    from tformer_cli.text.batching import Divide
    from tformer_cli.trainer.validation import Scored, Scorer

BATCH_TOKENS = 4096
MEASURES = "loss", "perplexity", "bits_per_byte"
LONGEST_PROMPT, LONGEST_SAMPLE = 40, 100
"""Characters of the prompt that is continued, and tokens that may follow it."""


class LanguageModeling(TextModeling):
    """Texts from their beginning, by a decoder without an encoder."""

    examples = Examples("text", "beginning", "continuation", "original", has_two_sides=False)

    def complete_recipe(self, recipe: Recipe, progress: Progress | None) -> Recipe:
        """Names the fields of texts."""
        recipe = super().complete_recipe(recipe, progress)
        has_ends = recipe.data.text == "lines"  # blocks of a stream end anywhere
        return replace(recipe, model=replace(recipe.model, target_eos=has_ends))

    def scorer(self, held: HeldOut) -> Scorer:
        """Returns a function that measures a model by its loss and continues a line."""
        from tformer_cli.search.generator import Generator
        from tformer_cli.search.scoring import score_texts
        from tformer_cli.search.text_windows import text_scores
        from tformer_cli.search.torch_engine import TorchEngine
        from tformer_cli.text.blocks import join_lines
        from tformer_cli.trainer.validation import Scored

        recipe = held.recipe
        texts = [pair.target for pair in held.pairs if not is_blank(pair.target)]
        if recipe.data.text == "stream":
            texts = [join_lines([pair.target for pair in held.pairs])]
        lines = [line for text in texts for line in text.split("\n") if not is_blank(line)]
        # Windows do not overlap: each token is read once, as in training
        window = recipe.data.max_length + recipe.model.target_eos
        most = min(LONGEST_SAMPLE, window // 2)  # the prompt has to fit, too
        decoding = replace(recipe.decoding, n_best=1, min_length=0, max_length=most)
        engines = [TorchEngine(held.device, held.precision)]

        def score(
            model: Any,  # noqa: ANN401 - a decoder
            sample: int,
            before_batch: Callable[[], None],
            divide: Divide,
        ) -> Scored:
            ids = held.tokenizer.target.encode_phrases(texts)
            log_probabilities = score_texts(
                model,
                ids,
                window=window,
                stride=window,
                batch_tokens=BATCH_TOKENS,
                device=held.device,
                before_batch=before_batch,
                divide=divide,
            )
            n_ends = len(ids) if model.config.target_eos else 0  # each end counts as a byte
            scores = text_scores(log_probabilities, sum(len(t.encode()) for t in texts) + n_ends)
            line = lines[sample % len(lines)]
            length = min(LONGEST_PROMPT, -(-len(line) // 2))  # the rest is shown as the original
            generator = Generator(
                model,
                held.tokenizer,
                decoding,
                engines=engines,
                target_bos=model.config.target_bos,
                before_batch=before_batch,
            )

            def continue_lines(prompts: Sequence[str]) -> list[str]:
                return [own.texts[0].text for own in generator.generate(prompts, [sample])]

            (continued,) = divide([line[:length]], continue_lines)
            return Scored(
                scores={name: getattr(scores, name) for name in MEASURES},
                sample=(line[:length], continued, line[length:]),
            )

        return score

    def doubts(self, recipe: Recipe) -> Iterable[str]:
        """Also doubts a training that ends within its warm-up."""
        yield from super().doubts(recipe)
        training = recipe.training
        if 0 < training.max_steps <= training.warmup_steps and not recipe.start.model:
            yield (
                f"training.max_steps: {training.max_steps:,} steps end within the warm-up of "
                f"{training.warmup_steps:,} steps, so the model learns little; raise it, or lower "
                "training.warmup_steps"
            )


class LanguageModel(Kind):
    """A decoder without a source."""

    name = "language-model"
    verbs = ("generate", "score")
    searches = True
    measured_by = "text"
    training = LanguageModeling()

    def open_model(self, opening: Opening) -> Opened:
        from tformer_cli.kinds.opening import prepare_search
        from tformer_cli.search.generator import Generator
        from tformer_cli.search.opening import generation_config

        settings, stored = opening.settings, opening.directory
        decoding = generation_config(stored.decoding, settings.tell, **opening.overrides)
        opened, model, engines = prepare_search(opening, decoding)
        generator = Generator(
            model,
            stored.tokenizer,
            decoding,
            engines=engines,
            target_bos=stored.config.target_bos,
            target_eos=stored.config.target_eos,
            seed=settings.seed,
            stops=opening.stops,
        )
        return replace(opened, search=generator)

    def serving(self, opened: Opened, verb: Verb) -> Serving:  # noqa: ARG002 - the only one
        from tformer_cli.kinds.serving import Generating

        return Generating(opened)


KIND = LanguageModel()
