"""Marian itself gives the scores of tformer: of models that it trained, and of tformer's own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.foreign.own import TRANSLATION, own_model
from tests.plugins.interchange.marian.test_exporting import OWN
from tformer_cli.artifacts.config_file import SHORTLIST
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.cli.app import app
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.lines.score import score_lines
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.built_in.make_corpus import make_corpus
from tformer_cli.plugins.interchange.export import export_marian
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer

PYMARIAN = "TFORMER_PYMARIAN"
"""Folder of the installed package pymarian (1.12.42)."""
PROGRAM = """
import sys
import _pymarian
kind, options, lines = sys.argv[1], sys.argv[2], sys.stdin.read().splitlines()
if kind == "train":
    _pymarian.Trainer(options).train()
elif kind == "score":
    sys.exit(_pymarian.main([kind, *options.split()]))
else:
    print("\\n".join(_pymarian.Translator(options).translate(lines)))
"""
N_LINES, BEAM = 12, 4
TIED = "--tied-embeddings-all --vocabs v.spm v.spm --dim-vocabs 800 800"
VARIANTS = {
    "post-norm, swish": TIED,
    "pre-norm, relu, depth scaling": f"{TIED} --transformer-preprocess n --transformer-postprocess "
    "da --transformer-postprocess-top n --transformer-depth-scaling --transformer-ffn-activation "
    "relu",
    "two vocabularies": "--tied-embeddings --vocabs en.spm fr.spm --dim-vocabs 500 800",
    "three matrices": "--vocabs v.spm v.spm --dim-vocabs 800 800 --transformer-postprocess-top n",
    "ssru": f"{TIED} --transformer-decoder-autoreg rnn --dec-cell ssru",
}

RECIPE = """
[data]
train = [{{source = "{corpus}/train.en", target = "{corpus}/train.fr"}}]
valid = [{{source = "{corpus}/valid.en", target = "{corpus}/valid.fr"}}]
[tokenizer]
vocab_size = 500
[model]
d_model = 64
n_heads = 4
d_ff = 128
n_encoder_layers = 2
n_decoder_layers = 2
[training]
max_steps = 600
warmup_steps = 100
tokens_per_batch = 1500
"""
"""Model of tformer's own."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    make_corpus(path, 2000)
    return path


def marian(kind, options, folder, text=""):
    """Runs Marian in a folder; returns what it has written."""
    package = os.environ.get(PYMARIAN, "")
    if not (Path(package) / "pymarian").is_dir():
        pytest.skip(f"{PYMARIAN} does not name the folder of the package pymarian")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, f"{options} --cpu-threads 1 --quiet"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": package},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def search_by_marian(config, folder, lines):
    """Marian's n-best lists: for each line the texts, with log-probability and score."""
    options = f"-c {config} --n-best --beam-size {BEAM} --normalize 1 --mini-batch 1"
    found = [[] for _ in lines]
    for line in marian("translate", options, folder, "\n".join(lines)).splitlines():
        number, text, features, score = line.split(" ||| ")
        found[int(number)].append((text, float(features.removeprefix("F0= ")), float(score)))
    return found


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS)
def test_translations_and_scores_are_those_of_marian(tmp_path, corpus, variant):
    lines = (corpus / "test.en").read_text().splitlines()[:N_LINES]
    shape = "--dim-emb 32 --transformer-heads 4 --transformer-dim-ffn 64 --enc-depth 2"
    steps = "--after-batches 300 --mini-batch 24 --maxi-batch 10 --seed 1"
    rate = "--learn-rate 0.006 --lr-warmup 40"
    marian(
        "train",
        f"--type transformer -m model.npz -t {corpus}/train.en {corpus}/train.fr {shape} "
        f"--dec-depth 2 {steps} {rate} --workspace 256 --max-length 60 {VARIANTS[variant]} "
        f"--valid-sets {corpus}/valid.en {corpus}/valid.fr --valid-freq 300 --valid-log valid.log "
        "--valid-metrics cross-entropy --valid-mini-batch 8",
        tmp_path,
    )
    import_model(str(tmp_path), tmp_path / "ours")
    export_marian(tmp_path / "ours", tmp_path / "again")
    measured = re.search(r"cross-entropy : ([\d.]+)", (tmp_path / "valid.log").read_text())
    assert cross_entropy(tmp_path / "ours", corpus) == pytest.approx(float(measured[1]), rel=1e-5)
    if "pre-norm" in variant:  # Marian's own decoder computes them otherwise than its training
        return
    wanted = search_by_marian("model.npz.decoder.yml", tmp_path, lines)
    ours = translate_lines(
        tmp_path / "ours", lines, beam_size=BEAM, n_best=BEAM, length_normalization="average"
    )
    found = [[(h.text, h.log_probability, h.score) for h in result.hypotheses] for result in ours]
    assert_same_scores(found, wanted)
    assert_same_scores(
        search_by_marian("decoder.yml", tmp_path / "again", lines), wanted, least=0.95
    )


def cross_entropy(model, corpus):
    """The mean of the lines' negative log-probabilities, by `tformer score`."""
    texts = ["--source", str(corpus / "valid.en"), "--target-file", str(corpus / "valid.fr")]
    result = CliRunner().invoke(app, ["score", str(model), *texts, "--quiet"])
    assert result.exit_code == 0, result.stderr
    scores = [float(line) for line in result.stdout.splitlines()]
    return -sum(scores) / len(scores)


def assert_same_scores(actual, wanted, least=0.5):
    """Compares the scores of texts that are in both n-best lists of a line.

    A young model repeats itself: it ends some texts only at a limit of length, which is not the
    same in both tools, and cuts some words in two ways.
    """
    differences, n_all = [], 0
    for ours, theirs in zip(actual, wanted, strict=True):
        for text, log_probability, score in theirs:
            same = [other for other in ours if other[0].strip() == text.strip()]
            n_all += 1
            if same:
                differences.append(
                    min(max(abs(o[1] - log_probability) / 5, abs(o[2] - score)) for o in same)
                )
    assert len(differences) >= least * n_all
    assert sum(difference <= 1e-4 for difference in differences) >= 0.95 * len(differences)


@pytest.mark.long
@pytest.mark.parametrize("variant", OWN)
def test_pairs_have_the_scores_of_tformers_own_models(tmp_path, corpus, variant):
    texts = [(corpus / f"test.{side}").read_text().splitlines()[:N_LINES] for side in ("en", "fr")]
    tokenizer = train_tokenizer([*texts[0], *texts[1]] * 20, TokenizerConfig(vocab_size=400))
    own_model(tmp_path / "ours", tokenizer, {**TRANSLATION, "n_decoder_layers": 2, **OWN[variant]})
    export_marian(tmp_path / "ours", tmp_path / "again")
    for side, lines in zip(("en", "fr"), texts, strict=True):
        labels = [tokenizer.pieces(tokenizer.encode(line)) for line in lines]
        (tmp_path / side).write_text("".join(f"{' '.join(pieces)}\n" for pieces in labels))
    files = "-m again/model.npz -v again/vocab.yml again/vocab.yml -t en fr --mini-batch 1"
    found = [float(score) for score in marian("score", files, tmp_path).split()]
    opened = open_model(tmp_path / "ours")
    wanted = [pair.result.log_probability for pair in score_lines(opened, *texts)]
    np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.long
def test_a_model_of_tformers_own_translates_the_same_in_marian(tmp_path, corpus):
    lines = (corpus / "test.en").read_text().splitlines()[:N_LINES]
    (tmp_path / "recipe.toml").write_text(RECIPE.format(corpus=corpus))
    arguments = ["train", str(tmp_path / "recipe.toml"), "-o", str(tmp_path / "ours"), "--quiet"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    export_marian(tmp_path / "ours", tmp_path / "again")
    pairs = ["-i", f"{corpus}/train.en", "--target-file", f"{corpus}/train.fr"]
    arguments = ["shortlist", str(tmp_path / "ours"), *pairs, "--best", "20", "--save", "--quiet"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    export_marian(tmp_path / "ours", tmp_path / "few")
    # Marian fills its lists up to a multiple of 8 tokens, which changes a few translations
    assert_same_translations(tmp_path, lines, "few", least=N_LINES - 2)
    (tmp_path / "ours" / SHORTLIST).unlink()
    assert_same_translations(tmp_path, lines, "again")


def assert_same_translations(path, lines, folder, least=N_LINES):
    """Compares greedy and beam search of a model of tformer's own with Marian's."""
    tokenizer = load_model_directory(path / "ours").tokenizer
    labels = [" ".join(tokenizer.source.pieces(tokenizer.source.encode(line))) for line in lines]
    for beam_size in (1, BEAM):
        options = f"-c {folder}/decoder.yml --normalize 1 --beam-size {beam_size}"
        written = marian("translate", options, path, "\n".join(labels)).splitlines()
        ids = [[tokenizer.target.id_of(label) for label in line.split()] for line in written]
        ours = translate_lines(
            path / "ours", lines, beam_size=beam_size, length_normalization="average"
        )
        pairs = zip([tokenizer.target.decode(row) for row in ids], ours, strict=True)
        assert sum(text == result.text for text, result in pairs) >= least
