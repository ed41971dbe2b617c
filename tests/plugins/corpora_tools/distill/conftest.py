import pytest

from tests.models import LINES
from tformer_cli.plugins.corpora_tools.distill.setup import Setup
from tformer_cli.recipe import load_recipe

TARGETS = [
    "Ein Mann schläft.",
    "Zwei Hunde rennen im Schnee.",
    "die Straße",
    "Eine Frau, ein Hund.",
]
RECIPE = """\
[data]
directory = "{directory}"
cache_directory = "{directory}/cache"
train = [{{ source = "train.en", target = "train.de" }}]
valid = [{{ source = "train.en", target = "train.de" }}]
max_length = 39
[tokenizer]
vocab_size = 300
[model]
d_model = 16
n_heads = 2
d_ff = 32
n_encoder_layers = 1
n_decoder_layers = 1
decoder_cell = "ssru"
norm = "pre"
max_positions = 40
[training]
precision = "float32"
tokens_per_batch = 400
max_steps = 4
warmup_steps = 2
checkpoint_every = 2
[validation]
every = 4
[decoding]
beam_size = 1
max_length = 6
[distillation]
teachers = ["{teacher}"]
teacher_beam_size = 3
teacher_n_best = 3
"""


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def texts(tmp_path):
    """A directory with a tiny corpus."""
    write_lines(tmp_path / "train.en", LINES * 4)
    write_lines(tmp_path / "train.de", TARGETS * 4)
    return tmp_path


@pytest.fixture
def make(texts, model):
    """Makes the setup of a distillation by a random teacher, with changes to the recipe."""
    (texts / "d.toml").write_text(RECIPE.format(directory=texts, teacher=model), encoding="utf-8")

    def make_setup(*overrides, **more):
        recipe = load_recipe(str(texts / "d.toml"), overrides)
        return Setup(recipe=recipe, directory=texts / "out", threads=1, **more)

    return make_setup
