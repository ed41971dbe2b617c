"""Recipes of tiny models that learn in a second."""

from tformer_cli.recipe import make_recipe

SHAPE = {"d_model": 16, "n_heads": 2, "d_ff": 32}
LEARNING = {"precision": "float32", "learning_rate": 1e-2, "warmup_steps": 5, "average": "none"}


def recipe_maker(folder, *, complete=None, **tables):
    """Returns what makes recipes of these tables, with some keys changed.

    A change is a table, `training={"max_steps": 1}`, or a key, `training__max_steps=1`. Files are
    looked for in the folder, which has the cache of corpora, too.
    """

    def change_recipe(**changes):
        values = {"data": {"directory": str(folder), "cache_directory": str(folder / "cache")}}
        for given in (tables, changes):
            for key, value in given.items():
                table, _, name = key.partition("__")
                values[table] = {**values.get(table, {}), **({name: value} if name else value)}
        return make_recipe(values, "test", complete)

    return change_recipe


def tiny_translator(folder, n_pairs=300, **tables):
    """As `recipe_maker`, of a translator that learns the built-in corpus."""
    bases = {
        "data": {
            "train": [{"built_in": "train", "pairs": n_pairs}],
            "valid": [{"built_in": "valid", "pairs": n_pairs}],
        },
        "tokenizer": {"vocab_size": 300},
        "model": {**SHAPE, "n_encoder_layers": 1, "n_decoder_layers": 1},
        "training": {"precision": "float32", "tokens_per_batch": 400, "warmup_steps": 8},
        "validation": {"max_sentences": 2, "metric": "loss"},
        "decoding": {"max_length": 8},
    }
    return recipe_maker(folder, **{name: {**bases[name], **tables.get(name, {})} for name in bases})
