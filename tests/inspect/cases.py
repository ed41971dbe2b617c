"""One case of each kind: a model, two inputs, and what the model itself computes of them."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from tests.models import tokenizer_of
from tformer_cli.artifacts.config_file import TASKS, ModelInfo, task_kind
from tformer_cli.artifacts.model_directory import load_model_directory, save_model_directory
from tformer_cli.inspect.jobs.reader import inspected_model
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import Classifier, EncoderOnly, MaskedLanguageModel
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.tokenizer import EOS_ID

POOLINGS = {
    "class": {"pooling": "first"},
    "mean": {"pooling": "mean", "class_token": False},
    "mean with class": {"pooling": "mean"},
    "both": {"pooling": "first-and-mean"},
    "post": {"pooling": "mean", "class_token": False, "norm": "post"},
    "pooler": {"pooling": "first", "pooler": "tanh"},
}
N_PIXELS = 12 * 8 * 3


def save_model(path, kind, config, tokenizer, labels=()):
    """The directory of a model all of whose parameters are random."""
    torch.manual_seed(5)
    weights = kind(config, tokenizer.vocab_size).state_dict()
    random = {name: 2.0 * w + 0.1 * torch.randn_like(w) for name, w in weights.items()}
    save_model_directory(
        path, random, config=config, tokenizer=tokenizer, decoding=DecodingConfig(),
        info=ModelInfo(labels=labels),
    )  # fmt: skip
    return path


def stored_model(path, model, tokenizer, decoding=None, **info):
    """The directory of a model as it is."""
    save_model_directory(
        path, model.state_dict(), config=model.config, tokenizer=tokenizer,
        decoding=decoding or DecodingConfig(), info=ModelInfo(**info),
    )  # fmt: skip
    return path


def pixels_of(number):
    """The values of the pixels of a made-up image, which are its name."""
    drawn = torch.Generator().manual_seed(number)
    return " ".join(map(str, torch.randint(256, (N_PIXELS,), generator=drawn).tolist()))


def drawn_images(path, name):
    """A model of images, and its directory; what is 0 or 1 at first is as random as the rest."""
    from safetensors.torch import save_file

    from tests.plugins.instruments.views.test_image import directory

    path, model = directory(path, **POOLINGS[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    save_file(model.state_dict(), path / "model.safetensors")
    return path, model


TEXT, GAPS = "Two dogs run in the street", "the [MASK] was not too [MASK]."
SHAPE = {"d_model": 32, "n_heads": 4, "d_ff": 64, "max_positions": 40}
ENCODER = {**SHAPE, "n_encoder_layers": 2, "n_decoder_layers": 0}
LABELS = ("fair", "good", "no\tgood")
OWN = {
    # a language model whose texts neither begin nor end
    "stream": (Transformer, {
        **SHAPE, "n_key_heads": 2, "n_encoder_layers": 0, "n_decoder_layers": 3, "norm": "pre",
        "positions": "rotary", "target_bos": False, "target_eos": False}),
    "masked": (MaskedLanguageModel, {
        **ENCODER, "head": "tokens", "norm": "pre", "norm_kind": "rms", "positions": "rotary"}),
    "encoder": (EncoderOnly, {**ENCODER, "head": "none", "unit_length": True}),
    "text mean": (Classifier, {
        **ENCODER, "n_labels": 3, "pooling": "mean", "norm": "pre", "norm_kind": "rms",
        "gated": True}),
    "text first": (Classifier, {
        **ENCODER, "n_labels": 3, "pooling": "first", "norm": "pre", "norm_kind": "rms",
        "gated": True}),
}  # fmt: skip
PREDICTING = ("language_model", "stream", "classifier", "text mean", "text first", "masked")
PREDICTING += (*POOLINGS,)
ONE_A_KIND = ("language_model", "classifier", "masked", "class")


@cache  # the tests of a model look at the same records, and change none
def read(view, path, item, settings):
    (record,) = inspect_view(view, path, [item], settings=dict(settings))
    return record


class Case(NamedTuple):
    """A model, two inputs, and what is said of its kind."""

    path: Path
    items: tuple[str, str]
    model: Any

    @property
    def task(self):
        return task_kind(self.model.config)

    @property
    def kind(self):
        return "dec" if self.model.config.is_decoder_only else "enc"

    @property
    def is_pooled(self):
        return self.kind == "enc" and self.task != "masked"

    @property
    def directory(self):
        return load_model_directory(self.path, tasks=tuple(TASKS))

    def read(self, view="heads", item=0, **settings):
        return read(view, self.path, self.items[item], tuple(settings.items()))

    def rows(self, record, model=None):
        """(P, V) log-probabilities by a pass of the model, and (P) what stands there."""
        model, maps = model or self.model, record.captured
        ids = torch.tensor([maps.source_ids or [EOS_ID]])
        inputs = [ids, torch.ones_like(ids, dtype=torch.bool)]
        inputs += [torch.tensor([maps.target_input_ids])] if self.kind == "dec" else []
        with torch.inference_mode():
            logits = model(*inputs)[0]
        if self.kind == "dec":
            chosen, rows = maps.target_ids, logits
        elif self.task == "masked":
            chosen = [gap.id for gap in record.gaps]
            rows = logits[[gap.position for gap in record.gaps]]
        else:
            chosen, rows = [self.directory.info.labels.index(record.target)], logits[None]
        return rows.double().log_softmax(dim=-1), list(chosen)


@pytest.fixture(scope="module", params=[*PREDICTING, "encoder"])
def case(request, tmp_path_factory, one_thread):
    name, items = request.param, (TEXT, "Two dogs")
    if name in ("language_model", "classifier"):
        path = request.getfixturevalue(name)
    elif name in POOLINGS:
        path, _ = drawn_images(tmp_path_factory.mktemp("m") / "m", name)
        items = pixels_of(1), pixels_of(2)
    else:
        kind, settings = OWN[name]
        tokenizer = tokenizer_of()
        if name == "masked":
            tokenizer, items = tokenizer.with_mask(), (GAPS, "a [MASK] dog")
        path = tmp_path_factory.mktemp("saved") / "model"
        labels = LABELS if name.startswith("text") else ()
        save_model(path, kind, ModelConfig(**settings), tokenizer, labels)
    directory = load_model_directory(path, tasks=tuple(TASKS))
    return Case(path, items, inspected_model(directory))


def of(*names):
    return pytest.mark.parametrize("case", names, indirect=True)
