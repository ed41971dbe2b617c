"""The client of the exported page in node: doubt, and texts longer than the model takes."""

import json
import math
import os
import subprocess
from shutil import copytree

import pytest

from tests.commands import record_of, records_of, refused
from tests.models import save_random
from tests.slowly import slowly
from tformer_cli.artifacts.config_file import read_config
from tformer_cli.artifacts.doubt_file import SCHEMA, Calibration, store_calibration
from tformer_cli.inspect import doubt
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.page import export
from tformer_cli.search.config import DecodingConfig

RUN = os.environ.get("TFORMER_QUICKSTART_RUN", "")
TEXTS = [
    "Two dogs run in the snow.",
    "It is cold. My sister saw 25 children, and Anna saw Anna.",
    "Zo\u00eb\u00a0and Zo\u00eb! \U0001f600 \u00c5sa",
    "the dog , the dog",
]
LENSES = ["variant", "opus", "language_model", "llama", "classifier", "tagger", "masked"]
LONG = [
    "My sister saw 25 children in the garden, and the old man saw the dog; it was cold " * 2 + ".",
    "It is cold. " + "The old house is green and the woman sleeps, but the dog runs - it runs " * 3,
    "dog" * 70,
    "\u4e00\u4e8c\u4e09\u3002" * 30 + "\uff0c\u56db" * 40,
    "a b, c. d! " * 30,
    "e\u0301" * 90,
]


def calibrate(path, signals=None, intercept=-0.4):
    """Stores a calibration whose weights are all different."""
    names = signals or tuple(signal.name for signal in doubt.SIGNALS)
    n = len(names)
    store_calibration(
        path,
        Calibration(
            schema=SCHEMA, step=read_config(path).step, signals=names,
            means=tuple(0.1 * (k - 3) for k in range(n)), log_ratio=0.2, intercept=intercept,
            deviations=tuple(0.7 + 0.2 * k for k in range(n)), lines=50, below=0.3, broken=0.1,
            weights=tuple(0.3 * (-1) ** k / (k + 1) for k in range(2 * n)), scores={},
        ),
    )  # fmt: skip


@pytest.fixture(params=["translate", "variant"])
def calibrated(request, zoo, tmp_path):
    path = copytree(zoo[request.param], tmp_path / "model")
    calibrate(path)
    return path


def assert_doubts(client, model, texts):
    """Compares the doubts of texts and words with the command's."""
    command = ("translate", model, "--doubt", "--format", "jsonl")
    wanted = records_of(*command, stdin="\n".join(texts) + "\n")
    answers = client.run(model, [{"text": text, "want": ["alignment"]} for text in texts])
    for answer, line in zip(answers, wanted, strict=True):
        assert answer["translation"] == line["translation"]
        assert math.isclose(answer["doubt"], line["doubt"], abs_tol=1.01e-4)
        hypothesis = answer["events"][0]["hypotheses"][0]
        words, shares = zip(*line["word_probabilities"], strict=True)
        our_words, our_shares = zip(*hypothesis["word_probabilities"], strict=True)
        assert our_words == words
        assert our_shares == pytest.approx(shares, abs=1.01e-4)
        assert max(hypothesis["sentence_doubts"]) == answer["doubt"]


def test_doubt_is_that_of_the_command(client, calibrated):
    assert_doubts(client, calibrated, TEXTS)


@pytest.mark.slow
@pytest.mark.skipif(not RUN, reason="TFORMER_QUICKSTART_RUN names no run")
def test_doubt_of_the_quickstart_is_that_of_the_command(client):
    assert_doubts(client, RUN, TEXTS)


def test_the_client_computes_every_signal():
    assert set(export.KNOWN_SIGNALS) == {signal.name for signal in doubt.SIGNALS}


def test_a_signal_that_the_client_does_not_compute_is_refused_by_name(
    calibrated, tmp_path, monkeypatch
):
    monkeypatch.setattr(export, "KNOWN_SIGNALS", export.KNOWN_SIGNALS[:-1])
    path = tmp_path / "page.html"
    error = refused("export", calibrated, "--format", "page", "-o", path)
    assert f"the page cannot compute the doubt's {doubt.SIGNALS[-1].name}" in error
    assert not path.exists()


def test_a_model_that_is_calibrated_no_more_has_no_doubt(client, calibrated):
    calibrate(calibrated, ("probability",))
    (answer,) = client.run(calibrated, [{"text": TEXTS[0]}])
    assert answer["translation"]
    assert "doubt" not in answer


@pytest.mark.parametrize("several", [0.0, 0.4])
def test_long_texts_are_translated_in_parts_as_by_the_command(client, tmp_path, several):
    path = save_random(
        tmp_path / "model", max_positions=24, info={"several_sentences": several},
        decoding={"beam_size": 2, "max_length": 6}, scale=3.0,
    )  # fmt: skip
    translator = open_model(path, device="cpu").translator
    wanted = [line.text for line in translator.translate(LONG)]
    answers = client.run(path, [{"text": text} for text in LONG])
    assert [answer["translation"] for answer in answers] == wanted


WRONG = [
    ({"beam_sise": 4}, "beam_sise: no such key; the keys are text, want, heads_off, "),
    ({"beam": 4}, "beam: no such key; "),
    ({"coverage_penalty": 0.2}, "coverage_penalty: no such key; "),
    ({"constructor": 1}, "constructor: no such key; "),
    ({"top": 3}, "top: no such key; "),
    ({"x\ny": 1}, "x y: no such key; "),
    ({"continues": False}, "continues: no such key; "),
    ({"heads_off": "cross.1.1"}, "heads_off: must be a list of heads"),
    ({"heads_off": ["cross.1.1", "nix"]}, "heads_off: no head nix; there are enc.0.0, "),
    ({"heads_off": ["cross.9.9"]}, "heads_off: no head cross.9.9; there are "),
    ({"heads_off": [1]}, "heads_off: no head 1; "),
    ({"want": ["nix"]}, "want: no event nix; there are alignment, heads, "),
    ({"want": "heads"}, "want: must be a list of events"),
    *(
        ({"beam_size": size}, "beam_size: must be an integer from 1 to 10000")
        for size in (0, 10_001, 2.5, "4", True, [4])
    ),
    ({"n_best": 0}, "n_best: must be an integer from 1 to 10000"),
    ({"n_best": 3, "beam_size": 2}, "n_best: must be at most beam_size = 2, but is 3"),
    ({"max_length": -1}, "max_length: must be an integer from 0 to 1000000000"),
    ({"min_length": 5, "max_length": 4}, "min_length: must be at most max_length = 4, but is 5"),
    ({"length_penalty": 11}, "length_penalty: must be a number from 0 to 10"),
    ({"length_normalization": "mean"}, "length_normalization: must be gnmt or average"),
    ({"repetition_penalty": "1.2"}, "repetition_penalty: must be a number from 1 to 1000000"),
    ({"prefix": 5}, "prefix: must be text"),
    ({"sentence": -1}, "sentence: must be an integer from 0 to "),
    ({"text": 5}, "text: must be text"),
    ({"text": ["a"]}, "text: must be text"),
    ({"text": None}, "text: is missing, or is blank; give a sentence"),
    ({"head": 1}, "head: must be text"),
    ({"token": "dog"}, "token: must be a position, from 0"),
]


def test_what_a_request_may_not_have_is_refused_by_name(client, zoo):
    asked = [{"text": TEXTS[0], **request} for request, _ in WRONG]
    answers = client.run(zoo["translate"], [*asked, "text", None])
    lines = [line for _, line in WRONG] + ["the request: must be an object"] * 2
    for answer, line in zip(answers, lines, strict=True):
        assert answer.get("error", "").startswith(line)
        assert "\n" not in answer["error"]


def test_every_setting_of_the_search_may_be_asked_for(client, zoo):
    """Each setting that the page looks at has a check; null is as good as missing."""
    decoding = DecodingConfig(beam_size=2, max_length=9)
    settings = {name: getattr(decoding, name) for name in export._USED}
    asked = {"text": TEXTS[0], "prefix": "", "sentence": 0, "heads_off": None, **settings}
    (answer,) = client.run(zoo["translate"], [asked])
    assert "translation" in answer, answer


def test_models_of_other_kinds_take_no_settings_of_the_search(client, zoo):
    for name in ("classifier", "language_model"):
        answer, wrong = client.run(zoo[name], [{"text": "A man"}, {"text": "A", "beam_size": 2}])
        assert "error" not in answer
        assert wrong["error"].startswith("beam_size: no such key; ")
    filled, wrong = client.run(
        zoo["masked"], [{"text": "A [MASK]", "top": 2}, {"text": "A [MASK]", "top": 0}]
    )
    assert "filled" in filled
    assert wrong == {"error": "top: must be an integer from 1 to 100"}


def assert_numbers(value, wanted, where=""):
    """Compares JSON, its numbers to 1e-4 of their size."""
    if isinstance(wanted, dict | list):
        names = wanted if isinstance(wanted, dict) else range(len(wanted))
        assert len(value) == len(wanted), where
        for name in names:
            assert_numbers(value[name], wanted[name], f"{where}.{name}")
    elif isinstance(wanted, float):
        assert math.isclose(value, wanted, rel_tol=1e-4, abs_tol=1e-5), (where, value, wanted)
    else:
        assert value == wanted, where


@pytest.mark.parametrize("name", ["translate", *slowly(*LENSES)])
def test_the_lens_is_that_of_the_command(client, zoo, name):
    text = "A [MASK] in the <mask>." if name == "masked" else TEXTS[0]
    wanted = record_of("inspect-logits", zoo[name], text, "--lens", "--format", "jsonl")
    (answer,) = client.run(zoo[name], [{"text": text, "want": ["lens"]}])
    positions = next(e["data"] for e in answer["events"] if e["event"] == "lens")["positions"]
    assert len(positions) == len(wanted["positions"])
    for position, expected in zip(positions, wanted["positions"], strict=True):
        assert_numbers(position, expected)


PAUSE = """
import { pause } from "./pause.js";
const controller = new AbortController(), { signal } = controller, seen = { adds: 0, removes: 0 };
for (const name of ["add", "remove"]) {
  const does = signal[`${name}EventListener`].bind(signal);
  signal[`${name}EventListener`] = (...how) => { seen[`${name}s`]++; does(...how); };
}
for (let n = 0; n < 3; n++) await pause(0, signal);
const told = pause(60_000, signal).catch(reason => reason.name);
controller.abort();
const again = await pause(0, signal).catch(reason => reason.name);
console.log(JSON.stringify({ ...seen, told: await told, again }));
"""


def test_a_pause_leaves_no_listener_on_its_signal(client):
    command = ["node", "--input-type=module", "-e", PAUSE]
    done = subprocess.run(command, cwd=client.folder, capture_output=True, text=True, check=True)
    found = {"adds": 4, "removes": 3, "told": "AbortError", "again": "AbortError"}
    assert json.loads(done.stdout) == found
