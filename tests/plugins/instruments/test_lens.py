"""Earlier layers read as the last one: beside Marian, by maps worked by hand, and by commands."""

import json
import shutil

import pytest
import torch

from tests.commands import output_of, record_of, records_of, refused, run
from tests.model.test_marian import pair  # noqa: F401 - the fixture
from tests.zoo import ENGLISH
from tformer_cli.errors import ArtifactError
from tformer_cli.inspect.capture.maps import ids_read
from tformer_cli.inspect.jobs.reader import BUFFER_LINES, inspected_model, open_for_inspection
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.inspect.view import WITH_OUTPUT
from tformer_cli.plugins.instruments import lens as lenses
from tformer_cli.plugins.instruments.jobs import layers as job
from tformer_cli.plugins.instruments.jobs.layers import LayerModel
from tformer_cli.plugins.instruments.lens import UNTUNED, Lens, fit_lens, read_layers, single
from tformer_cli.plugins.instruments.lens_file import StoredMaps, read_maps, store_maps
from tformer_cli.plugins.instruments.views.logits import layer_logits
from tformer_cli.search.beam_search import beam_search
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.source_batches import source_batch

pytest.importorskip("transformers")

SOURCE, TARGET_INPUT = (5, 9, 7, 11, 6, 3), (2, 20, 24, 21)
TEXTS = [f"{start}{text}" for start in ("", "Look: ") for text in ENGLISH]


@torch.no_grad()
def test_the_decoder_reads_a_layer_as_marian_does(pair):  # noqa: F811
    from transformers.modeling_outputs import BaseModelOutput

    ours, theirs = pair[0].eval(), pair[1].eval()
    source, target = torch.tensor([SOURCE]), torch.tensor([TARGET_INPUT])
    encoded = theirs.get_encoder()(input_ids=source, output_hidden_states=True)
    _, layers = read_layers(ours, single(ours, SOURCE, TARGET_INPUT), "enc")
    final_norm = getattr(theirs.get_encoder(), "layer_norm", torch.nn.Identity())
    assert len(layers) == 2
    for layer, logits in enumerate(layers):
        memory = encoded.last_hidden_state
        if layer < 1:
            memory = final_norm(encoded.hidden_states[layer + 1])
        expected = theirs(
            encoder_outputs=BaseModelOutput(last_hidden_state=memory), decoder_input_ids=target
        )
        torch.testing.assert_close(logits, expected.logits, atol=1e-5, rtol=0)


def test_the_last_layer_is_the_model_bit_for_bit(pair):  # noqa: F811
    model = pair[0].eval()
    with torch.inference_mode():
        logits, layers = read_layers(model, single(model, SOURCE, TARGET_INPUT), "enc")
        assert torch.equal(layers[-1], logits)
        assert not torch.equal(layers[0], logits)
        sources = source_batch([SOURCE[:-1]], 32, "cpu")
        config = DecodingConfig(beam_size=3, max_length=8)
        whole, last, first = (
            beam_search(layered, *sources, config)[0][0]
            for layered in (model, LayerModel(model, UNTUNED, 1), LayerModel(model, UNTUNED, 0))
        )
    assert (whole.token_ids, whole.score) == (last.token_ids, last.score)
    assert whole.score != first.score


def test_a_map_is_the_regression_worked_by_hand():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(500, 6, generator=generator, dtype=torch.float64)
    weight = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    bias = torch.arange(6.0, dtype=torch.float64)
    moments = lenses._Moments(6)
    for part in (x[:200], x[200:]):  # in batches as at once
        moments.add(part, part + part @ weight.T + bias)
    solution = moments.solve()
    centered = x - x.mean(dim=0)
    covariance = centered.T @ centered / 500
    ridge = lenses.RIDGE * covariance.diagonal().mean() * torch.eye(6)
    expected = torch.linalg.inv(covariance + ridge) @ covariance @ weight.T
    torch.testing.assert_close(solution[0].double(), expected.T, atol=1e-6, rtol=0)
    torch.testing.assert_close(solution[0].double(), weight, atol=0.02, rtol=0)
    torch.testing.assert_close(solution[1].double(), bias, atol=0.02, rtol=0)


def test_the_map_of_the_last_layer_is_the_identity():
    moments = lenses._Moments(4)
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    moments.add(x, x)
    assert not any(part.any() for part in moments.solve())


def pairs_of(n):
    """Makes different pairs, up to 140."""
    return [
        ((5 + i % 7, 9, 12 + i // 7 % 5, 17 + i // 35), (20 + i % 7, 24, 27 + i // 7 % 5))
        for i in range(n)
    ]


def test_maps_explain_the_last_layer_and_read_better(pair):  # noqa: F811
    model = pair[0].eval()
    seen = []
    lens, fitted = fit_lens(model, pairs_of(120), seen.append)
    assert [layer.name for layer in fitted] == ["enc.0", "dec.0", "dec.1"]
    assert seen[-1] == 120
    assert seen == sorted(seen)
    for layer in fitted:
        assert layer.explained > 0.7  # lines of few words, but none that was fitted to
        assert layer.tuned >= layer.untuned
        assert lens.agreement[layer.name] == layer.tuned
    # What is reported is what the lens does: one token at a time
    held = pairs_of(120)[4::5]
    alike = []
    with torch.inference_mode():
        for source, target in held:
            batch = single(model, (*source, 3), (2, *target))
            logits, layers = read_layers(model, batch, "enc", lens)
            alike += (layers[0].argmax(2) == logits.argmax(2))[0].tolist()
    assert fitted[0].tuned == pytest.approx(sum(alike) / len(alike))


def test_few_logits_are_held_at_a_time(pair, monkeypatch):  # noqa: F811
    model = pair[0].eval()
    whole, n_rows, project = fit_lens(model, pairs_of(40))[1], [], model.project

    def count_rows(hidden):
        n_rows.append(hidden.shape[:-1].numel())
        return project(hidden)

    monkeypatch.setattr(model, "project", count_rows)
    monkeypatch.setattr(lenses, "LARGEST_LOGITS", 3 * len(model.output_matrix))
    assert fit_lens(model, pairs_of(40))[1] == whole
    assert max(n_rows) == 3


def test_the_logit_lens_reads_by_the_same_maps(pair):  # noqa: F811
    model = pair[0].eval()
    plain = layer_logits(model, SOURCE, TARGET_INPUT)[1]
    assert torch.equal(plain, layer_logits(model, SOURCE, TARGET_INPUT, lens=Lens())[1])
    # A map to where all states are alike
    maps = {"dec.0": (-torch.eye(model.config.d_model), torch.zeros(model.config.d_model))}
    mapped = layer_logits(model, SOURCE, TARGET_INPUT, lens=Lens(maps))[1]
    assert torch.equal(mapped[1:], plain[1:])
    assert torch.equal(mapped[0, 0], mapped[0, 1])


@pytest.fixture
def copied(zoo, tmp_path):
    def copy(name="translate"):
        shutil.copytree(zoo[name], tmp_path / name)
        (tmp_path / "text").write_text("\n".join(TEXTS))
        return tmp_path / name

    return copy


def test_layers_are_read_by_a_command(zoo, tmp_path):
    sentence = "The old house."
    shown = output_of("inspect-layers", zoo["translate"], sentence, "--format", "text", "-q")
    assert "layer 0" in shown
    assert "as it is, then by the encoder's final norm" in shown.replace("\n", " ")
    record, blank = records_of("inspect-layers", zoo["translate"], sentence, " ", "-q")
    last = record["layers"][-1]
    assert (last["chrf"], last["agreement"]) == (100, 1)
    assert last["text"] == record["target"]["text"]
    logits = record_of("inspect-logits", zoo["translate"], sentence, "-q", "--format", "jsonl")
    mean = sum(place["log_probability"] for place in logits["positions"]) / len(logits["positions"])
    assert last["log_probability"] == pytest.approx(mean, abs=1e-5)
    assert [place["piece"] for place in record["positions"]] == record["target"]["pieces"]
    assert blank["layers"] == []
    forced = record_of("inspect-layers", zoo["translate"], sentence, "--target", "La rue.", "-q")
    assert forced["target"]["is_forced"]
    assert forced["layers"][-1]["chrf"] < 100
    page, figure = tmp_path / "p.html", tmp_path / "p.svg"
    for file in (page, figure):
        output_of("inspect-layers", zoo["translate"], "A <b> dog.", "-o", file, "-q")
    assert "A &lt;b&gt; dog." in page.read_text()
    assert figure.read_text().count("layer ") >= 2


def test_maps_are_stored_and_used(copied):
    model = copied()
    sentence = ["The old house.", "-q", "--format", "jsonl"]

    def both(*more):
        commands = ["inspect-layers"], ["inspect-logits", "--lens"]
        return [record_of(verb, model, *sentence, *own, *more) for verb, *own in commands]

    before = both()
    done = run("inspect-layers", model, "--tune", model.parent / "text", "--format", "jsonl")
    assert "maps stored" in done.stderr
    fitted = [json.loads(line) for line in done.stdout.splitlines()]
    assert [layer["id"] for layer in fitted] == ["enc.0", "dec.0"]
    stored = read_maps(model)
    assert {name: shares["tuned"] for name, shares in stored.agreement.items()} == {
        layer["id"]: pytest.approx(layer["tuned"], abs=1e-6) for layer in fitted
    }
    layers, logits = both()
    assert layers["lens"] == logits["lens"] == "tuned"
    assert layers["layers"][1] == before[0]["layers"][1]
    assert layers["layers"][0] != before[0]["layers"][0]
    layers, logits = both("--untuned")
    assert layers["layers"] == before[0]["layers"]
    assert layers["held_out"]["enc.0"] == pytest.approx(stored.agreement["enc.0"]["untuned"])
    assert logits == before[1]


def test_a_line_is_fitted_to_once(copied):
    model = copied()
    once, twice = model.parent / "text", model.parent / "twice"
    twice.write_text("\n".join([*TEXTS[:7], *TEXTS]))
    tables = [records_of("inspect-layers", model, "--tune", file, "-q") for file in (once, twice)]
    assert tables[0] == tables[1]


def test_a_corpus_is_read_up_to_the_most_lines(copied, monkeypatch):
    def endless():
        for number in range(job.MOST_LINES + BUFFER_LINES):
            yield f"A dog: {number}."
        pytest.fail("more lines are read than are fitted to")

    monkeypatch.setattr(job, "MOST_LINES", 30)
    opened = open_for_inspection(copied("language_model"), tasks=WITH_OUTPUT)
    done = []
    job.tune_lens(opened, endless(), progress=done.append)
    assert done[-1] == 30


def sentence_by_sentence(opened, lens):
    """Yields for each layer but the last the share of held-out places read as by the model."""
    model, alike = inspected_model(opened.directory), []
    kind = "dec" if model.config.is_decoder_only else "enc"
    for ids in job.read_corpus(opened, TEXTS)[4::5]:
        read = ids_read(model.config, *ids)
        with torch.inference_mode():
            logits, layers = read_layers(model, single(model, *read), kind, lens)
        final = logits[0].argmax(1)
        alike += torch.stack([states[0].argmax(1) == final for states in layers[:-1]], 1).tolist()
    return torch.tensor(alike).double().mean(0).tolist()


@pytest.mark.parametrize("kind", ["language_model", "classifier", "masked", "tagger"])
def test_every_model_that_predicts_has_maps(copied, kind):
    model = copied(kind)
    fitted = records_of("inspect-layers", model, "--tune", model.parent / "text", "-q",
                        "--format", "jsonl")  # fmt: skip
    # What is said is what a lens does: one text at a time, without padding
    opened = open_for_inspection(model, tasks=WITH_OUTPUT)
    rates = [sentence_by_sentence(opened, lens) for lens in (UNTUNED, Lens(read_maps(model).maps))]
    for layer, untuned, tuned in zip(fitted, *rates, strict=True):
        assert (layer["untuned"], layer["tuned"]) == pytest.approx((untuned, tuned), abs=1e-6)
    text = "A <mask> dog." if kind == "masked" else "A dog."
    record = record_of("inspect-logits", model, text, "--lens", "-q", "--format", "jsonl")
    assert record["lens"] == "tuned"


def test_maps_of_other_weights_are_refused(copied, zoo):
    model = copied()
    output_of("inspect-layers", model, "--tune", model.parent / "text", "-q")
    # Damage that a file by itself does not show
    maps = read_maps(model)
    store_maps(model, StoredMaps(maps=maps.maps, weights="0", agreement=maps.agreement))
    for command in (["inspect-layers"], ["inspect-logits", "--lens"]):
        refused(command[0], model, "A dog.", "-q", *command[1:], says="fitted to other weights")
        output_of(command[0], model, "A dog.", *command[1:], "--untuned", "-q")
    assert next(inspect_view("layers", zoo["translate"], ["A dog."])).lens is UNTUNED


@pytest.mark.parametrize("more", [(), ("--untuned",)])
def test_weights_are_hashed_once_for_all_sentences(copied, monkeypatch, more):
    model = copied()
    output_of("inspect-layers", model, "--tune", model.parent / "text", "-q")
    hashed = []
    hash_weights = lenses.weights_hash
    monkeypatch.setattr(lenses, "weights_hash", lambda m: hashed.append(m) or hash_weights(m))
    three = records_of("inspect-logits", model, *TEXTS[:3], "--lens", *more, "-q")
    assert ["lens" in record for record in three] == [not more] * 3
    assert len(hashed) == 1


@pytest.mark.parametrize("damage", ["bytes", "shape", "nan", "format"])
def test_damaged_maps_are_refused(tmp_path, damage):
    from safetensors.torch import save_file

    file = tmp_path / "lens.safetensors"
    header = {"format": "tformer lens/1", "weights": "0",
              "agreement": '{"enc.0": {"tuned": 1, "untuned": 0}}'}  # fmt: skip
    tensors = {"enc.0.weight": torch.zeros(2, 2), "enc.0.bias": torch.zeros(2)}
    save_file(tensors, file, header)
    assert read_maps(tmp_path).agreement["enc.0"]["tuned"] == 1
    if damage == "shape":
        tensors["enc.0.bias"] = torch.zeros(3)
    if damage == "nan":
        tensors["enc.0.weight"][0, 0] = torch.nan
    if damage == "format":
        header["format"] = "other"
    save_file(tensors, file, header)
    if damage == "bytes":
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=r"lens\.safetensors"):
        read_maps(tmp_path)


def test_a_lens_that_reads_nothing_says_so(copied):
    model = copied()
    output_of("inspect-layers", model, "--tune", model.parent / "text", "-q")
    maps = read_maps(model)
    agreement = {name: {"tuned": 0.9, "untuned": 0.03} for name in maps.maps}
    store_maps(model, StoredMaps(maps=maps.maps, weights=maps.weights, agreement=agreement))
    for command in (["inspect-layers"], ["inspect-logits", "--lens"]):
        shown = [" ".join(output_of(command[0], model, "A dog.", *command[1:], *more, "-q",
                                    "--format", "text").split())
                 for more in ([], ["--untuned"])]  # fmt: skip
        says = "layer 0: this lens does not read it (agreement 3 % of held-out tokens); fit maps"
        assert says not in shown[0]
        assert says in shown[1]
