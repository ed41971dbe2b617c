import gzip

import pytest
import torch

from tformer_cli.artifacts.model_directory import ModelInfo, save_model_directory
from tformer_cli.data.config import TokenizerConfig
from tformer_cli.data.train_tokenizer import train_tokenizer
from tformer_cli.decoding.config import DecodingConfig
from tformer_cli.errors import ArtifactError, DataError, UsageError
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.runtime import prepare_cpu
from tformer_cli.model.transformer import Transformer
from tformer_cli.workflows.translate import open_translator, translate_file, translate_lines

LINES = ["A man sleeps.", "Two dogs run in the snow.", "the street", "A woman and a dog."]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.backends.mkldnn.matmul.fp32_precision, torch.get_num_threads()
    torch.set_num_threads(1)
    prepare_cpu.__wrapped__()
    yield
    torch.backends.mkldnn.matmul.fp32_precision = before[0]
    torch.set_num_threads(before[1])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model directory with random weights, which writes at most six tokens."""
    tokenizer = train_tokenizer(LINES * 3, TokenizerConfig(vocab_size=300))
    config = ModelConfig(
        d_model=64, n_heads=2, d_ff=96, n_encoder_layers=1, n_decoder_layers=1, max_positions=40
    )
    torch.manual_seed(2)
    path = tmp_path_factory.mktemp("translation") / "model"
    save_model_directory(
        path,
        Transformer(config, tokenizer.vocab_size).state_dict(),
        config=config,
        tokenizer=tokenizer,
        decoding=DecodingConfig(beam_size=3, max_length=6),
        info=ModelInfo(),
    )
    return path


def test_lines_are_translated_in_order_with_the_settings_given(model):
    found = list(translate_lines(model, [*LINES, ""], beam_size=2, n_best=2, device="cpu"))
    assert [t.source for t in found] == [*LINES, ""]
    assert [len(t.hypotheses) for t in found] == [2, 2, 2, 2, 1]


def test_settings_not_given_are_the_models(model):
    opened = open_translator(model, beam_size=None, length_penalty=1.0)
    assert opened.translator.config.beam_size == 3
    assert opened.translator.config.length_penalty == 1.0
    assert opened.precision == "float32"


def test_an_open_directory_is_used_as_it_is(model):
    opened = open_translator(model)
    again = list(translate_lines(opened.directory, LINES))
    assert again == opened.translator.translate(LINES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 9}, "--n-best: must be at most beam_size = 3, but is 9"),
        ({"beam_size": 0}, "--beam-size: must be at least 1, but is 0"),
        ({"device": "tpu"}, "--device: must be auto, cpu, cuda or cuda:N"),
    ],
)
def test_impossible_settings_name_the_option(model, options, message):
    with pytest.raises(UsageError, match=message):
        open_translator(model, **options)


def test_no_model_directory_is_an_artifact_error(tmp_path):
    with pytest.raises(ArtifactError, match="no such directory"):
        open_translator(tmp_path / "nothing")


def test_a_file_becomes_a_file_with_as_many_lines(model, tmp_path):
    source, target = tmp_path / "in.txt.gz", tmp_path / "out.txt"
    source.write_bytes(gzip.compress("\n".join([*LINES, "", "x"]).encode()))
    counts = translate_file(model, source, target)
    expected = [t.text for t in translate_lines(model, [*LINES, "", "x"])]
    assert target.read_text(encoding="utf-8") == "".join(f"{text}\n" for text in expected)
    assert counts.lines == 6


def test_an_error_leaves_no_file(model, tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("short\n" + "long line " * 100 + "\n")
    with pytest.raises(DataError, match="line 2"):
        translate_file(model, source, target, too_long="error")
    assert [file.name for file in tmp_path.iterdir()] == ["in.txt"]
