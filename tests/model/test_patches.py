"""Classifiers of images: against the ViT of transformers, and what must hold of patches."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.oracles.vit import SIZE, config, our_weights, ours, vit
from tformer_cli.model.encoder_only import Classifier
from tformer_cli.model.operations import OneDnnProducts
from tformer_cli.model.patches import augment_images, patches_of
from tformer_cli.model.weight_shapes import parameter_count, parameter_shapes
from tformer_cli.search.encoding import label_probabilities

N_IDS = SIZE[0] * SIZE[1] * SIZE[2]
MASK = torch.ones(3, 6, dtype=torch.bool)
VARIANTS = [
    {},
    {"pooling": "mean"},
    {"pooling": "first-and-mean"},
    {"pooling": "mean", "class_token": False, "bias": False},
    {"positions": "rotary", "embedding_norm": True, "norm": "post"},
]


@pytest.fixture
def source():
    return torch.randint(4, 260, (3, N_IDS), generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_parameters_are_named_and_counted_without_a_model(changes):
    settings = config(**changes)
    model = Classifier(settings, 260)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert parameter_shapes(settings, 260) == shapes
    assert sum(p.numel() for p in model.parameters()) == parameter_count(settings, 260)
    assert not any("source_embedding" in name for name in shapes)


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_equals_the_vit_of_transformers_with_its_gradients(source, scale):
    theirs = vit()
    with torch.no_grad():  # small activations show the epsilon of norms, which hides otherwise
        for name, parameter in theirs.named_parameters():
            if "embeddings" in name:
                parameter.mul_(scale)
    model = ours(theirs)
    images = model.encoder_input.images(source)
    logits, expected = model(source, MASK), theirs(images).logits
    assert (logits - expected).abs().max() <= 1e-5
    for result in (logits, expected):
        result.log_softmax(-1)[:, 2].sum().backward()
    parameters = dict(model.named_parameters())
    for name, parts in our_weights(theirs).items():
        found = parameters.pop(name).grad.flatten()
        wanted = torch.cat([part.grad.flatten() for part in parts])
        assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max() + 1e-9, name
    assert not parameters


@pytest.mark.parametrize(
    "mutation",
    [
        {"norm_epsilon": 1e-6},
        {"activation": "gelu-tanh"},
        {"norm": "post", "final_norm": "always"},
        {"pooling": "mean"},
        {"n_heads": 4},
    ],
    ids=str,
)
def test_a_model_of_other_settings_differs(source, mutation):
    theirs = vit()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "embeddings" in name:
                parameter.mul_(1e-3)
    model = ours(theirs, **mutation)
    expected = theirs(model.encoder_input.images(source)).logits
    assert (model(source, MASK) - expected).abs().max() > 3e-5


def test_patches_are_those_of_a_convolution():
    images = torch.randn(2, 3, 12, 8, generator=torch.Generator().manual_seed(1))
    layer = nn.Conv2d(3, 7, 4, stride=4)
    with torch.no_grad():
        expected = layer(images).flatten(2).transpose(1, 2)
        found = patches_of(images, 4) @ layer.weight.flatten(1).T + layer.bias
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch.equal(patches_of(images, 4)[0, 1, :4], images[0, 0, 0, 4:8])


def test_moving_patches_together_with_their_positions_changes_nothing(source):
    model = ours(vit())
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    cells = model.encoder_input.images(source)
    expected = model.project(model.pool(model.encoder(model.encoder_input.embed(cells)), MASK))
    patches = patches_of(cells, 4)[:, order]
    # (B, h·w, C·P·P) -> (B, h, w, C, P, P) -> (B, C, H, W)
    moved = patches.view(3, 3, 2, 3, 4, 4).permute(0, 3, 1, 4, 2, 5).reshape(cells.shape)
    hidden = model.encoder(model.encoder_input.embed(moved))
    with torch.no_grad():
        unlike = model.project(model.pool(hidden, MASK))
        assert (unlike - expected).abs().max() > 1e-3
        table = model.encoder_input.positions.table
        table.copy_(table[torch.cat((torch.zeros(1, dtype=torch.long), order + 1))])
        hidden = model.encoder(model.encoder_input.embed(moved))
        assert torch.allclose(model.project(model.pool(hidden, MASK)), expected, atol=1e-5)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_pixels_are_normalized_and_pooled_as_it_says(source, changes):
    torch.manual_seed(0)
    model = Classifier(config(**changes), 260).eval()
    settings = model.config
    image = source[1].view(SIZE) - 4.0  # (H, W, C)
    expected = (image / 255 - torch.tensor(settings.image_mean)) / torch.tensor(settings.image_std)
    assert torch.allclose(model.encoder_input.images(source)[1], expected.permute(2, 0, 1))
    hidden = model.encode(source, MASK)
    assert hidden.shape == (3, settings.n_positions, 24)
    first = int(settings.class_token)
    parts = {"first": hidden[:, 0], "mean": hidden[:, first:].mean(1)}
    wanted = torch.cat([parts[name] for name in settings.pooling.split("-and-")], dim=1)
    assert torch.allclose(model.pool(hidden, MASK), wanted)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_an_image_has_the_same_bits_alone_and_in_any_batch(changes, one_thread):
    torch.manual_seed(0)
    model = Classifier(config(**changes), 260).eval()
    images = torch.randint(4, 260, (40, N_IDS), generator=torch.Generator().manual_seed(5)).tolist()
    with OneDnnProducts():
        together = label_probabilities(model, images)
        small = label_probabilities(model, images, batch_tokens=20)
        alone = [label_probabilities(model, [image])[0] for image in images]
    assert together == small == alone


def test_images_are_moved_and_mirrored_while_training_alone():
    pixels = torch.arange(2 * 4 * 3).view(1, 2, 4, 3).expand(400, -1, -1, -1)
    torch.manual_seed(1)
    found = augment_images(pixels, 1, flips=True)
    kinds = {tuple(image.flatten().tolist()) for image in found}
    assert len(kinds) == 3 * 3 * 2
    assert tuple(pixels[0].flatten().tolist()) in kinds
    down = pixels[0][:, [0, 0, 1, 2]]
    assert tuple(down.flatten().tolist()) in kinds
    assert tuple(pixels[0].flip(2).flatten().tolist()) in kinds
    torch.manual_seed(1)
    assert torch.equal(augment_images(pixels, 1, flips=True), found)
    assert torch.equal(augment_images(pixels, 0, flips=False), pixels)
    model = Classifier(config(image_shift=2), 260)
    source = torch.randint(4, 260, (3, N_IDS))
    assert not torch.equal(model.encoder_input.images(source), model.encoder_input.images(source))
    model.eval()
    assert torch.equal(model.encoder_input.images(source), model.encoder_input.images(source))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch_size": 5}, "patch_size: 5 does not divide an image of 12×8 pixels"),
        ({"image_size": (12, 8)}, "image_size: must be height, width and channels"),
        ({"image_size": (12, 0, 3)}, "image_size: must be height, width and channels"),
        ({"image_size": (12, 8, 5)}, r"at most \[8192, 8192, 4\], but is \[12, 8, 5\]"),
        ({"image_size": (8192, 8192, 1)}, "has 4,194,305 patches, more than 65,536"),
        ({"image_mean": (0.5,)}, "image_mean: must be one number for each of 3 channels"),
        ({"image_std": (0.5, 0.0, 1.0)}, "image_std: must be above 0"),
        ({"n_decoder_layers": 1, "n_labels": 0, "pooling": "mean"}, "patch_size: images need"),
        ({"pooling": "first-and-mean", "class_token": False}, "needs class_token = true"),
    ],
)
def test_contradictions_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


@pytest.mark.parametrize("name", ["image_size", "image_mean", "image_std"])
def test_a_model_needs_what_a_recipe_leaves_to_the_data(name):
    with pytest.raises(ValueError, match=f"{name}: a model of images needs it"):
        Classifier(replace(config(), **{name: ()}), 260)
