import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.inspect.cases import stored_model
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.artifacts.shortlist_file import save_frequencies
from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.heads import roles
from tformer_cli.heads.names import HeadId, attentions, head_layout
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.ablation import prune_heads
from tformer_cli.plugins.instruments.jobs.diff import ModelComparer, inspect_diff, open_models
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer

LINES = ["A man sleeps.", "Two dogs run in the snow.", "", "A woman and a dog."]
CONFIG = ModelConfig(
    d_model=32, n_heads=4, d_ff=48, n_encoder_layers=2, n_decoder_layers=2, max_positions=40
)


def make_directory(path, seed=1, config=CONFIG, lines=LINES):
    tokenizer = train_tokenizer(lines * 3, TokenizerConfig(vocab_size=300))
    torch.manual_seed(seed)
    model = Transformer(config, tokenizer.vocab_size)
    for _, _, attention in attentions(model):
        n_joined = config.d_model
        attention.in_projection.weight.data[: 2 * n_joined].mul_(3.0)  # heads far from even
        torch.nn.init.normal_(attention.in_projection.bias)
    decoding = DecodingConfig(beam_size=2, max_length=8)
    return load_model_directory(stored_model(path, model, tokenizer, decoding, step=seed))


@pytest.fixture(scope="module")
def first(tmp_path_factory, one_thread):
    return make_directory(tmp_path_factory.mktemp("diff") / "a")


@pytest.fixture(scope="module")
def second(tmp_path_factory, one_thread):
    return make_directory(tmp_path_factory.mktemp("diff") / "b", seed=2)


def permute_heads(directory, seed=3):
    """The same model with the heads of every layer in another order, and that order."""
    model = Transformer(directory.model.config, directory.model.vocab_size).eval()
    model.load_state_dict(directory.model.state_dict())
    generator, orders = torch.Generator().manual_seed(seed), {}
    for kind, layer, attention in attentions(model):
        order = torch.randperm(attention.n_heads, generator=generator)
        orders[kind, layer] = order.tolist()
        width = attention.head_width
        columns = torch.cat([torch.arange(width) + head * width for head in order.tolist()])
        rows = torch.cat([columns + part * len(columns) for part in range(3)])
        attention.in_projection.weight.data = attention.in_projection.weight.data[rows]
        attention.in_projection.bias.data = attention.in_projection.bias.data[rows]
        attention.out_projection.weight.data = attention.out_projection.weight.data[:, columns]
    return replace(directory, load=lambda: model), orders


def pairs_of(diff):
    return {change.first: change.second for change in diff.changes}


@pytest.mark.parametrize("matching", ["layer", "kind"])
def test_a_model_is_itself(first, matching):
    diff = inspect_diff(first, first, LINES, matching=matching)
    assert pairs_of(diff) == {head: head for head in head_layout(first.model)}
    for change in diff.changes:
        assert change.divergence == change.divergence_in_place == 0.0
        assert not change.has_moved
        assert not change.has_changed_role
        assert not diff.difference(change).any()
    assert diff.n_sentences == 3


@pytest.mark.parametrize("matching", [None, "kind"])
def test_exchanged_heads_are_found_again(first, matching):
    other, orders = permute_heads(first)
    source, mask = torch.tensor([[5, 6, 7, 3]]), torch.ones(1, 4, dtype=torch.bool)
    target = torch.tensor([[2, 8, 9]])
    before, after = (d.model(source, mask, target) for d in (first, other))
    assert torch.allclose(before, after, atol=1e-5), "the model computes what it did"
    diff = inspect_diff(first, other, LINES, matching=matching)
    assert diff.matching == (matching or "layer")
    expected = {
        HeadId(kind, layer, was): HeadId(kind, layer, now)
        for (kind, layer), order in orders.items()
        for now, was in enumerate(order)
    }
    assert pairs_of(diff) == expected
    assert any(head != now for head, now in expected.items())
    for change in diff.changes:
        assert change.divergence <= 1e-6
        assert abs(diff.difference(change)).max() <= 1e-5
        assert change.has_moved == (change.first != change.second)
        if change.has_moved:
            assert change.divergence_in_place > 1e-3
        assert change.first_role == change.second_role


def test_heads_that_were_pruned_have_no_counterpart(first):
    removed = [HeadId("enc", 1, 0), HeadId("enc", 1, 2), HeadId("cross", 1, 3)]
    # the last layers of each stack, so that what the others read stays as it was
    pruned = replace(first, load=lambda: prune_heads(first.model, removed))
    diff = inspect_diff(first, pruned, LINES)
    gone = [change.first for change in diff.changes if change.second is None]
    assert [head for head in gone if head.kind == "enc"] == removed[:2]
    assert len([head for head in gone if head.kind == "cross"]) == 1
    for change in diff.changes:
        if change.first in removed:
            continue
        if change.kind == "enc":
            assert change.divergence <= 1e-6
    back = inspect_diff(pruned, first, LINES)
    new = [change.second for change in back.changes if change.first is None]
    assert [head for head in new if head.kind == "enc"] == removed[:2]
    with pytest.raises(ValueError, match="no difference"):
        back.difference(next(c for c in back.changes if c.first is None))


def test_both_models_read_the_translation_by_the_first(first, second):
    diff = inspect_diff(first, second, LINES)
    records = list(inspect_heads(first, LINES))
    before, after = diff.shown
    assert (before.source, before.target) == (LINES[0], records[0].target)
    assert before.captured.target_input_ids == after.captured.target_input_ids
    assert before.captured.target_input_ids == records[0].maps.target_input_ids
    change = diff.most_changed
    assert change.divergence == max(c.divergence for c in diff.changes)
    forced = next(inspect_heads(second, LINES[:1], targets=[records[0].target]))
    if forced.maps.target_input_ids == before.captured.target_input_ids:
        expected = forced.maps.weights(change.second)
        expected = expected - records[0].maps.weights(change.first)
        np.testing.assert_allclose(diff.difference(change), expected, atol=1e-6)
    assert abs(diff.difference(change).sum(axis=-1)).max() < 1e-5


def test_given_targets_are_read_and_pairs_that_do_not_fit_are_counted(first, second):
    opened, other = open_models(first, second)
    comparer = ModelComparer(opened, other)
    lines = ["A man", "a " * 60, "", "the street"]
    assert list(comparer.read(lines, ["dogs run", "a", "b", "snow"])) == [4]
    assert (comparer.report.lines, comparer.report.too_long) == (4, 1)
    diff = comparer.diff()
    assert diff.n_sentences == 2
    assert diff.shown[0].target == "dogs run"
    assert diff.shown[0].is_forced


def test_only_chosen_heads_are_listed(first, second):
    everything = inspect_diff(first, second, LINES)
    chosen = inspect_diff(first, second, LINES, heads=["cross.1", "enc.0.2"])
    names = ["enc.0.2", "cross.1.0", "cross.1.1", "cross.1.2", "cross.1.3"]
    assert [str(change.first) for change in chosen.changes] == names
    assert set(chosen.changes) <= set(everything.changes)
    by_role = inspect_diff(first, second, LINES, heads=["@role=broad"])
    assert by_role.changes == tuple(c for c in everything.changes if c.first_role == "broad")


def reads_rare_tokens(directory, path, rare):
    """The model with a head enc.0.0 whose queries all look for some tokens."""
    model = Transformer(directory.model.config, directory.model.vocab_size)
    model.load_state_dict(directory.model.state_dict())
    weights = model.source_embedding.weight.data
    weights[:, 0], weights[rare, 0] = 0.0, 5.0
    attention = model.encoder.layers[0].self_attention
    width, d_model = attention.head_width, directory.model.config.d_model
    queries, keys = slice(0, width), slice(d_model, d_model + width)
    for part in (queries, keys):
        attention.in_projection.weight.data[part] = 0.0
        attention.in_projection.bias.data[part] = 0.0
    attention.in_projection.bias.data[0] = 10.0
    attention.in_projection.weight.data[d_model, 0] = 1.0
    return load_model_directory(stored_model(path, model, directory.tokenizer, directory.decoding))


@pytest.mark.parametrize("known_to", ["a", "b"])
def test_rare_word_heads_are_named_by_the_frequencies_of_either_model(
    first, tmp_path, monkeypatch, known_to
):
    monkeypatch.setattr(roles, "FREQUENT", 10)
    ids = first.tokenizer.encode(LINES[1])
    counts = torch.full((first.tokenizer.vocab_size,), 100)
    counts[ids] = 50
    counts[ids[2]] = 1
    counts[ids[-1]] = 2
    rare = reads_rare_tokens(first, tmp_path / "a", [ids[2], ids[-1]])
    other = replace(first, path=tmp_path / "b")
    other.path.mkdir()
    lines, targets = [LINES[1]], ["A man sleeps."]
    before = inspect_diff(rare, other, lines, targets=targets)
    assert "rare" not in {change.first_role for change in before.changes}
    assert before.rare_reason == "no frequencies.json in A or B"
    save_frequencies(tmp_path / known_to, counts.numpy())
    diff = inspect_diff(rare, other, lines, targets=targets, heads=["@role=rare"])
    assert [str(change.first) for change in diff.changes] == ["enc.0.0"]
    assert diff.changes[0].first_role == "rare"
    assert diff.changes[0].has_changed_role
    assert diff.rare_reason == ""
    frequent = inspect_diff(rare, other, ["A man"], targets=["A man"])
    assert "10 most frequent" in frequent.rare_reason or frequent.rare_reason


def test_models_of_other_depths_are_compared_across_layers(first, tmp_path):
    deeper = make_directory(tmp_path / "deeper", config=replace(CONFIG, n_encoder_layers=3))
    diff = inspect_diff(first, deeper, LINES)
    assert diff.matching == "kind"
    assert sum(change.first is None for change in diff.changes) == 4


def test_other_vocabularies_are_refused(first, tmp_path):
    other = make_directory(tmp_path / "other", lines=["Ein Mann schläft.", "Zwei Hunde."])
    with pytest.raises(DataError, match=r"tokenizers differ, from token \d+ on; .*one vocabulary"):
        inspect_diff(first, other, LINES)


def test_without_a_sentence_there_is_nothing_to_compare(first):
    with pytest.raises(DataError, match="has no sentence to compare; give one that is not blank"):
        inspect_diff(first, first, ["", "  "])
    with pytest.raises(DataError, match="no sentence fits both models; give a shorter one"):
        inspect_diff(first, first, ["A man " * 500])


def test_a_checkpoint_without_its_run_is_refused(first, tmp_path):
    checkpoint = tmp_path / "step-000004"
    checkpoint.mkdir()
    shutil.copy(first.path / "model.safetensors", checkpoint)
    (checkpoint / "state.json").write_text("{}")
    with pytest.raises(ArtifactError, match="is a checkpoint without its run"):
        inspect_diff(first, checkpoint, LINES)
