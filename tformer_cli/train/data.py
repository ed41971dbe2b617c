"""Training data: pairs, a tokenizer, tokenized corpora and notes about them."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from tformer_cli.artifacts.overwriting import NamedPath
from tformer_cli.errors import DataError, RecipeError
from tformer_cli.files.remote import path_in
from tformer_cli.kinds import training_of
from tformer_cli.kinds.kind import Progress
from tformer_cli.recipe import Recipe
from tformer_cli.search.sentences import split_sentences
from tformer_cli.text.corpora import SentencePair, corpus_name, read_corpus
from tformer_cli.text.languages import frequent_words
from tformer_cli.text.loading.encoded import EncodedCorpus, encode_corpus
from tformer_cli.text.loading.loader import Mixture
from tformer_cli.text.tokenizer import Tokenizer, read_tokenizer
from tformer_cli.text.train_tokenizer import train_sides
from tformer_cli.train.checking import check_files
from tformer_cli.train.start import start_tokenizer
from tformer_cli.wording import count_of, is_blank

# Lines of a corpus that are looked at to know its sentences.
MOST_SAMPLED = 2000
# Lines of a corpus whose words are counted, and of these at a time.
MOST_WORDED, AT_ONCE = 1 << 19, 1 << 10


def named_inputs(recipe: Recipe) -> list[NamedPath]:
    data = recipe.data
    named = [
        (f"data.{table}.{number}.{key}", Path(data.directory) / Path(name).expanduser())
        for table, corpora in (("train", data.train), ("valid", data.valid))
        for number, corpus in enumerate(corpora)
        for key in ("source", "target", "tsv", "jsonl", "dataset", "text", "images", "labels")
        if (name := getattr(corpus, key))
    ]
    if recipe.start.model:
        named.append(("model.from", Path(recipe.start.model)))
    elif recipe.tokenizer.path:
        named.append(("tokenizer.path", Path(data.directory) / recipe.tokenizer.path))
    return [NamedPath(name=name, path=path) for name, path in named]


def completed_recipe(recipe: Recipe, progress: Progress | None = None) -> Recipe:
    """Adds what its kind and training data decide to a recipe; see `Training.complete_recipe`."""
    check_files(recipe)
    return training_of(recipe).complete_recipe(recipe, progress)


def validation_pairs(recipe: Recipe, progress: Progress | None = None) -> list[SentencePair]:
    """Reads the first `validation.max_sentences` pairs (0: all) of the validation corpora."""
    read = (pair for c in recipe.data.valid for pair in read_corpus(c, recipe.data.directory))
    pairs: list[SentencePair] = []
    for pair in islice(read, recipe.validation.max_sentences or None):
        pairs.append(pair)
        if progress and len(pairs) % 1000 == 0:
            progress("reading validation pairs", len(pairs))
    has_two_sides = training_of(recipe).examples.has_two_sides
    is_usable = any(not any(map(is_blank, pair[0 if has_two_sides else 1 :])) for pair in pairs)
    if recipe.data.valid and not is_usable:
        raise DataError("data.valid: every example is blank; name another corpus")
    return pairs


def make_tokenizer(recipe: Recipe, progress: Progress | None = None) -> Tokenizer:
    """Opens the recipe's tokenizer, or trains it on the texts of the training corpora."""
    if recipe.start.model:
        return start_tokenizer(recipe)
    return training_of(recipe).make_tokenizer(recipe, partial(_text_tokenizer, recipe, progress))


def _text_tokenizer(recipe: Recipe, progress: Progress | None) -> Tokenizer:
    if recipe.tokenizer.path:
        path = path_in(recipe.data.directory, recipe.tokenizer.path)
        tokenizer = read_tokenizer(path / "tokenizer.json" if path.is_dir() else path)
        if tokenizer.is_joint != recipe.tokenizer.joint:
            found = "one vocabulary" if tokenizer.is_joint else "two vocabularies"
            raise RecipeError(
                f"tokenizer.path: {recipe.tokenizer.path} has {found}; set tokenizer.joint = "
                f"{str(tokenizer.is_joint).lower()}"
            )
        if recipe.tokenizer.bpe_dropout and tokenizer.algorithm != "bpe":
            raise RecipeError(
                f"tokenizer.bpe_dropout: needs a BPE tokenizer, but {recipe.tokenizer.path} is "
                f'"{tokenizer.algorithm}"'
            )
        return tokenizer
    return train_sides(partial(_texts, recipe, progress), recipe.tokenizer)


def with_vocabularies(recipe: Recipe, tokenizer: Tokenizer) -> Recipe:
    """Adds the size of the source's vocabulary, where it has one of its own."""
    if recipe.tokenizer.joint:
        return recipe
    n_source = tokenizer.source.vocab_size
    if recipe.model.source_vocab_size not in (0, n_source):
        raise RecipeError(
            f"model.source_vocab_size: is {recipe.model.source_vocab_size}, but the source's "
            f"vocabulary has {n_source}; omit it"
        )
    return replace(recipe, model=replace(recipe.model, source_vocab_size=n_source))


def _texts(recipe: Recipe, progress: Progress | None) -> Iterator[Sequence[str]]:
    n_pairs, has_text, texts = 0, False, training_of(recipe).texts
    for corpus in recipe.data.train:
        for pair in read_corpus(corpus, recipe.data.directory):
            yield tuple(texts(pair))
            has_text = has_text or not all(map(is_blank, pair))
            n_pairs += 1
            if progress and n_pairs % 1000 == 0:
                progress("training the tokenizer", n_pairs)
    if not has_text:
        names = ", ".join(map(corpus_name, recipe.data.train))
        raise DataError(f"data.train: {names} contain no text; give sentence pairs")


def encoded_corpora(
    recipe: Recipe, tokenizer: Tokenizer, progress: Progress
) -> list[EncodedCorpus]:
    corpora = []
    for corpus in recipe.data.train:
        tell = partial(progress, f"encoding {corpus_name(corpus)}")
        corpora.append(encode_corpus(corpus, recipe.data, tokenizer, tell))
    if not sum(len(corpus) for corpus in corpora):
        raise DataError(
            f"data.train: no sentence pair is usable ({'. '.join(notes(recipe, corpora))}); "
            "give others, or raise data.max_length and data.max_length_ratio"
        )
    weights = [corpus.weight for corpus in recipe.data.train]
    if not Mixture([len(c) for c in corpora], weights, recipe.training.seed).n_examples:
        raise DataError(
            "data.train: its weights leave no sentence pair in an epoch; raise data.train.0.weight"
        )
    return corpora


def notes(recipe: Recipe, corpora: Sequence[EncodedCorpus]) -> Iterator[str]:
    """Reports for each training corpus how many examples it has and why others were skipped."""
    reasons = {
        "blank": "blank on one side" if training_of(recipe).examples.has_two_sides else "blank",
        "too_long": f"over {recipe.data.max_length} tokens",
        "ratio": f"length ratio over {recipe.data.max_length_ratio:g}",
    }
    for config, corpus in zip(recipe.data.train, corpora, strict=True):
        dropped = [f"{n:,} {reasons.get(why, why)}" for why, n in corpus.dropped.items() if n]
        left_out = f"; skipped: {', '.join(dropped)}" if dropped else ""
        cached = ", from the cache" if corpus.from_cache else ""
        broken = ""
        if corpus.not_utf8:
            broken = f"; {count_of(corpus.not_utf8, 'line')} not UTF-8, read as U+FFFD"
        size = count_of(len(corpus), unit_of(recipe))
        yield f"{corpus_name(config)}: {size}{cached}{left_out}{broken}"


def share_of_several(corpora: Sequence[EncodedCorpus]) -> float:
    """Returns the share of source lines that hold several sentences, of a sample of each corpus."""
    several = 0.0
    for corpus in corpora:
        lines, _ = corpus.texts(_sample(corpus, MOST_SAMPLED))
        n_several = sum(len(split_sentences(line)) > 1 for line in lines)
        several += len(corpus) * n_several / max(1, len(lines))
    return several / sum(map(len, corpora))


def source_words(corpora: Sequence[EncodedCorpus]) -> list[str]:
    rows = [(corpus, _sample(corpus, MOST_WORDED)) for corpus in corpora]
    lines = (
        line
        for corpus, sample in rows
        for start in range(0, len(sample), AT_ONCE)
        for line in corpus.texts(sample[start : start + AT_ONCE])[0]
    )
    return frequent_words(lines)


def _sample(corpus: EncodedCorpus, most: int) -> range:
    return range(0, len(corpus), max(1, -(-len(corpus) // most)))


def unit_of(recipe: Recipe) -> str:
    return "block" if recipe.data.text == "stream" else training_of(recipe).examples.example


def fingerprint(pairs: Sequence[SentencePair]) -> str:
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()
