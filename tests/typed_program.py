"""A user's program with a call of everything, which type checkers read and nothing runs.

`tests/test_types.py` has mypy and pyright check it as strictly as they can: each line that ends in
`wrong` as a comment has an error, and no other has one.
"""

import copy
from collections.abc import Iterator, Sequence  # noqa: TC003 - a program needs them
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import tformer
from numpy.typing import NDArray
from tformer import LoadedModel, TformerError

from tformer_cli.api.results import AlignedPair, Results, TokenizedText
from tformer_cli.evaluate.evaluate import Evaluation, LabelEvaluation, TextEvaluation
from tformer_cli.inspect.pages import Report
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.kinds.lines.classify import LabeledText
from tformer_cli.kinds.lines.embed import EmbeddedText
from tformer_cli.kinds.lines.fill import FilledText
from tformer_cli.kinds.lines.score import ScoredPair
from tformer_cli.kinds.tag import TaggedText
from tformer_cli.plugins.instruments.views.flow import FlowRecord
from tformer_cli.plugins.instruments.views.logits import LogitsRecord
from tformer_cli.search.generator import Generation
from tformer_cli.search.translator import Doubt, TranslatedText, Translation
from tformer_cli.train.train import TrainingResult
from tformer_cli.trainer.events import TrainingEvent

LINES = ["The cat is old.", "My sister was tired."]


def load() -> LoadedModel:
    assert_type(tformer.__version__, str)
    tformer.load(Path("runs/mine"), adapter="runs/x", ensemble=["runs/y"], shortlist="none")
    tformer.load("runs/mine", adapter=Path("runs/x"), ensemble=[Path("runs/y")], banned=("a",))
    tformer.load("runs/mine", ensemble_weights=[1, 0.5], ensemble_space="log", heads=["enc.0"])
    tformer.load("runs/mine", split_sentences="none", too_long="error", source_language="en")
    with tformer.load("runs/mine", device="cpu", threads=1, beam_size=2, risk="chrf") as model:
        assert_type(model, LoadedModel)
    assert_type(copy.deepcopy(model), LoadedModel)
    model.close()
    tformer.load()  # wrong
    tformer.load(3)  # wrong
    tformer.load("runs/mine", beam=3)  # wrong
    tformer.load("runs/mine", beam_size="3")  # wrong
    tformer.load("runs/mine", precision="int4")  # wrong
    tformer.load("runs/mine", adapter=3)  # wrong
    tformer.load("runs/mine", tell=print)  # wrong
    return tformer.load("runs/mine", precision="int8", engine="compiled", seed=2)


def translate(model: LoadedModel) -> str:
    results = model.translate(LINES, buffer_lines=1, doubt=True, beam_size=4, n_best=2)
    assert_type(results, Results[Translation])
    assert_type(results[0], Translation)
    assert_type(results[:1], list[Translation])
    assert_type([row.text for row in results], list[str])
    assert_type(results[0][0], TranslatedText)
    assert_type(results[0].hypotheses[0].score, float)
    assert_type(results[0].doubt, Doubt | None)
    assert_type(len(results) + len(results[0]), int)
    sequence: Sequence[Translation] = results
    iterator: Iterator[Translation] = results
    model.translate(iter(LINES), length_penalty=1.0, sampling=True, temperature=0.5, top_k=3)
    model.translate([3])  # wrong
    model.translate(3)  # wrong
    model.translate(LINES, beam=3)  # wrong
    model.translate(LINES, n_best="2")  # wrong
    model.translate(LINES, risk="wer")  # wrong
    model.translate(LINES, device="cpu")  # wrong
    model.translte(LINES)  # wrong
    model.to("cuda")  # wrong
    model(LINES)  # wrong
    return results.text + sequence[0].text + next(iterator).text


def compute(model: LoadedModel, pixels: NDArray[np.uint8]) -> None:
    assert_type(model.score(LINES, LINES), Results[ScoredPair])
    assert_type(model.score(LINES, LINES)[0].result.log_probability, float)
    assert_type(model.classify([Path("a.png"), pixels, "b.png"]), Results[LabeledText])
    assert_type(model.classify(LINES, too_long="error")[0].label, str)
    assert_type(model.tag(LINES), Results[TaggedText])
    assert_type(model.tag(LINES)[0].words[0].label, str)
    assert_type(model.embed(LINES, pooling="mean", unit_length=True), Results[EmbeddedText])
    assert_type(model.fill(LINES, top=2), Results[FilledText])
    assert_type(model.fill(LINES)[0].gaps[0][0].token, str)
    assert_type(model.generate(["a"], stops=["."], top_p=0.9), Results[Generation])
    assert_type(model.generate()[0].texts[0].text, str)
    assert_type(model.tokenize(LINES, side="target"), Results[TokenizedText])
    assert_type(model.align(LINES, LINES, heads=["cross.0"], eos="keep"), Results[AlignedPair])
    assert_type(model.align(LINES)[0].words, list[tuple[str, str]])
    assert_type(
        model.evaluate(LINES, LINES, beam_size=1),
        Evaluation | LabelEvaluation | TextEvaluation[Any],
    )
    assert_type(np.stack([np.asarray(row) for row in model.embed(LINES)]).shape, tuple[Any, ...])
    model.score(LINES)  # wrong
    model.classify([3])  # wrong
    model.embed(LINES, pooling="middle")  # wrong
    model.align(LINES, eos="lose")  # wrong


def inspect(model: LoadedModel) -> None:
    assert_type(model.heads(LINES, mode="live", weights="norm"), Results[HeadsRecord])
    assert_type(model.heads(LINES, n_best=2)[0].text, str)
    assert_type(model.flow(LINES), Results[FlowRecord])
    assert_type(model.logits(LINES, lens=True), Results[LogitsRecord])
    assert_type(model.inspect("step", LINES, head="cross.0.1", key="cat"), Results[Any])
    assert_type(model.report(LINES, ablation=False), Report)
    assert_type(model.report(LINES).html, str)
    model.heads(LINES, mode="dead")  # wrong
    model.inspect(3)  # wrong


def train() -> TrainingResult:
    def observe(event: TrainingEvent) -> None:
        assert_type(event, TrainingEvent)

    result = tformer.train(
        {"model": {"preset": "tiny"}}, "runs/mine", device="cpu", observers=[observe]
    )
    tformer.train("quickstart", Path("runs/x"), changes={"training.max_steps": 1}, start="runs/y")
    assert_type(result.run, Path)
    tformer.train("quickstart")  # wrong
    tformer.train("quickstart", "runs/x", start=3)  # wrong
    return result


def evaluate() -> float:
    scores = tformer.evaluate(LINES, [LINES], lowercase=True, tokenize="intl")
    assert_type(scores, Evaluation)
    tformer.evaluate(LINES, LINES, lowercas=True)  # wrong
    try:
        return scores.scores[0].value
    except TformerError as error:
        assert_type(error.exit_status, int)
        return 0.0
