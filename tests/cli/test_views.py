"""Every terminal view at three widths, with tokens that are long, wide or run from right to left.

A view is a class of `inspection/views` with blocks, or a function `show_…(console, …)` of `cli` or
`show`; one that is not drawn here fails a test.
"""

import ast
import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import typer
from rich.cells import cell_len

import tformer_cli
from tests import screens
from tests.models import save_random
from tests.plugins.corpora_tools.comparison.test_compare import compare_all as compare_tiny
from tformer_cli.cli.app import app
from tformer_cli.cli.commands.evaluate import show_evaluation
from tformer_cli.cli.commands.guide import show_guide
from tformer_cli.cli.help import show_help, show_list
from tformer_cli.cli.inspect.inspect_heads import show_role_rules
from tformer_cli.evaluate.evaluate import Evaluation, score_hypotheses
from tformer_cli.heads.names import HeadId
from tformer_cli.heads.roles import ROLES
from tformer_cli.inspect.heads.repeats import SCORES, HeadRepeats, Repeats
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.reader import CorpusInspector
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.inspect.record import ModelSummary
from tformer_cli.inspect.views.corpus import (
    AlignmentScore,
    AlignmentScores,
    AlignmentView,
    CorpusRecord,
    CorpusView,
    RepeatsView,
)
from tformer_cli.inspect.views.heads import HeadsOptions, HeadsView
from tformer_cli.inspect.views.timeline import HeadCourse, HeadTimeline, TimelineView
from tformer_cli.kinds.opening import open_model
from tformer_cli.metrics.alignment_error import AlignmentCounts
from tformer_cli.metrics.significance import PairedDifference
from tformer_cli.plugins.built_in.commands.quickstart import (
    QUICKSTARTS,
    show_commands,
    show_quickstart,
)
from tformer_cli.plugins.corpora_tools.benchmark import Setting, Speed
from tformer_cli.plugins.corpora_tools.check_data import check_data, report_document
from tformer_cli.plugins.corpora_tools.commands.benchmark import show_speeds
from tformer_cli.plugins.corpora_tools.commands.tokenize import show_statistics
from tformer_cli.plugins.corpora_tools.comparison.report import comparison_document
from tformer_cli.plugins.corpora_tools.quality.given import given_data
from tformer_cli.plugins.corpora_tools.tokenize import measure
from tformer_cli.plugins.instruments.chart import make_chart, show_chart
from tformer_cli.plugins.instruments.jobs.decision import inspect_decision
from tformer_cli.plugins.instruments.jobs.diff import inspect_diff
from tformer_cli.plugins.instruments.lens import FittedLayer
from tformer_cli.plugins.instruments.minimal_pairs import MinimalPair
from tformer_cli.plugins.instruments.probes import LayerProbe, ProbeResult
from tformer_cli.plugins.instruments.views.ablation import (
    Ablation,
    AblationSettings,
    ChangesView,
    CurvePoint,
    HeadEffect,
    ModelCost,
    Pruning,
    TextAblationView,
    WithoutHeads,
)
from tformer_cli.plugins.instruments.views.circuit import (
    CircuitHead,
    CircuitOptions,
    CircuitsRecord,
    CircuitView,
    ModelCircuit,
    NoCircuit,
    Share,
    Verdict,
)
from tformer_cli.plugins.instruments.views.decision import DecisionOptions, DecisionView
from tformer_cli.plugins.instruments.views.diff import DiffView
from tformer_cli.plugins.instruments.views.flow import FlowOptions, FlowView
from tformer_cli.plugins.instruments.views.image import ImageRecord, ImageView, Looked
from tformer_cli.plugins.instruments.views.layers import LayersView, TunedView
from tformer_cli.plugins.instruments.views.logits import LogitsView
from tformer_cli.plugins.instruments.views.positions import PositionsView
from tformer_cli.plugins.instruments.views.probe import ProbeReport, ProbeView
from tformer_cli.plugins.instruments.views.step import StepView
from tformer_cli.plugins.instruments.walkthrough.worksheet import make_quiz
from tformer_cli.show.curves import XName, read_run
from tformer_cli.show.terminal import show_document
from tformer_cli.text.tokenizer import read_tokenizer

WIDTHS = (60, 80, 120)
LONG, WIDE, HEBREW, ARABIC = (
    "Donaudampfschifffahrtsgesellschaft",
    "東京特許許可局",
    "שלום",
    "السلام",
)
SOURCE = f"{LONG} {WIDE} a {HEBREW} {ARABIC} {WIDE} e\u0301te\u0301 . {HEBREW} {LONG} b {WIDE}"
TARGET = f"{ARABIC} {LONG} {WIDE} x {HEBREW} {LONG} ."
N_HEADS = 16
ALL_HEADS = [
    HeadId(kind, layer, head)
    for kind in ("enc", "dec", "cross")
    for layer in range(2)
    for head in range(N_HEADS)
]


@pytest.fixture(scope="module")
def models(tmp_path_factory, one_thread):
    """Two model directories with 2 + 2 layers of 16 heads, and a word for each of the above."""
    folder = tmp_path_factory.mktemp("models")
    return [
        write_model(
            folder / f"{HEBREW}-{LONG}-{seed}", seed, n_encoder_layers=2, n_decoder_layers=2
        )
        for seed in (1, 2)
    ]


def write_model(path, seed, **shape):
    """Writes a model of 16 heads that knows a word for each of the above."""
    return save_random(
        path, [SOURCE, TARGET] * 3, algorithm="word", vocab_size=100, seed=seed,
        decoding={"beam_size": 1, "max_length": 8}, d_model=64, n_heads=N_HEADS, d_ff=32, **shape,
    )  # fmt: skip


def difference(name, value):
    return PairedDifference(
        name=name, baseline=1.0, value=1.0 + value, low=-0.25, high=value, p_value=0.004
    )


def effect(place, head):
    scores = tuple(difference(name, -place / 7) for name in ("BLEU", "chrF2")) if place < 3 else ()
    return HeadEffect(
        head=head,
        rank=place,
        loss_rank=place,
        loss=difference("loss", 0.9876 - place / 100),
        importance=0.5 / (place + 1),
        layer_importance=0.1,
        scores=scores,
    )


def ablation_of(model, *, has_scores):
    effects = [effect(place, head) for place, head in enumerate(ALL_HEADS)]
    scores = {"BLEU": 31.25, "chrF2": 55.5} if has_scores else {}
    curve = [
        CurvePoint(
            n_removed=n,
            head=None,
            loss=1.5 + n,
            scores=tuple(difference(name, n / 3) for name in scores),
        )
        for n in range(len(effects) + 1)
    ]
    return Ablation(
        model=model,
        n_lines=1000,
        n_tokens=123456,
        loss=1.2345,
        settings=AblationSettings(),
        effects=tuple(effects),
        curve=tuple(curve),
        scores=scores,
    )


def pruning_of(model):
    cost = ModelCost(
        n_heads=96,
        n_parameters=123_456_789,
        n_bytes=493_827_156,
        lines_per_second=1234.5,
        loss=1.2345,
        scores={"BLEU": 31.25, "chrF2": 55.5},
    )
    scores = tuple(difference(name, -0.5) for name in ("BLEU", "chrF2"))
    return Pruning(
        directory=f"{model}/{LONG}",
        removed=tuple(ALL_HEADS),
        before=cost,
        after=cost,
        scores=scores,
    )


def scores_of():
    counts = AlignmentCounts(n_links=100, sure=90, found_sure=70, found_possible=80)
    ways = [
        AlignmentScore(name=f"cross.{layer}.{head}", convention=convention, counts=counts)
        for layer in range(2)
        for head in range(N_HEADS)
        for convention in ("naive", "shift")
    ]
    return AlignmentScores(scores=ways, floor=counts, ceiling=counts)


def speeds_of():
    return [
        Speed(
            setting=Setting(engine=engine, precision="float32", beam_size=5),
            n_lines=1000,
            lines_per_second=12345.6,
            tokens_per_second=234567.0,
            processor_seconds=1.5,
            latency_p50=1.2345,
            latency_p95=2.3456,
            latency_p99=3.4567,
            peak_memory=12_345_678_901,
            load_seconds=1.0,
            kernels=kernels,
            refusal=None,
        )
        for engine, kernels in (("tformer", "native"), ("torch", "torch"))
    ]


def repeats_of(model):
    scores = {name: 1 / (place + 2) for place, name in enumerate(SCORES)}
    intervals = {name: (value - 0.01, value + 0.02) for name, value in scores.items()}
    heads = [head for head in ALL_HEADS if head.kind == "dec"]
    return Repeats(
        model=model,
        n_blocks=1000,
        length=64,
        losses=(12.345, 6.789),
        heads=tuple(HeadRepeats(head=h, scores=scores, intervals=intervals) for h in heads),
    )


def circuits_of(models):
    """Circuits that differ by the model's number."""
    share = Share(value=0.9345, low=0.81, high=1.02)
    places = {f"{head.kind}.{head.layer}": 0.21 - 0.1 * head.layer for head in ALL_HEADS}
    verdict = Verdict(
        d=(12.345, -6.78, -7.0), faithfulness=share, completeness=share, decides=0.975,
        random=0.12, random_reach=0.04, without_layer=places,
    )  # fmt: skip
    circuits = [
        ModelCircuit(
            model=ModelSummary(
                name=name, n_encoder_layers=2, n_decoder_layers=2, n_heads=16, step=7
            ),
            n_given=1000,
            n_chosen=400,
            n_judged=399,
            heads=tuple(
                CircuitHead(id=str(h), **h._asdict(), in_circuit=h.head < 2 + number,
                            without=1 / (n + 1), alone=-0.01, reads=None if n % 3 else 0.123)
                for n, h in enumerate(ALL_HEADS)
            ),
            curve=(0.5, 1.0),
            verdict=verdict,
        )
        for number, name in enumerate(models)
    ]  # fmt: skip
    example = MinimalPair(sentence=SOURCE, other=TARGET, target=LONG, foil=WIDE)
    failed = NoCircuit(model=replace(circuits[0].model, name="small"), reason=f"PAIRS: {LONG}")
    return CircuitsRecord(
        pairs=f"{LONG}.tsv", example=example, least=0.9, models=tuple(circuits), failed=(failed,)
    )


def fitted_of():
    return [
        FittedLayer(name=f"{kind}.{layer}", untuned=0.0123, tuned=0.9, explained=-1.25)
        for kind in ("enc", "dec")
        for layer in range(12)
    ]


def probes_of(model):
    layers = tuple(
        LayerProbe(
            layer=layer, accuracy=0.8, accuracy_interval=(0.7, 0.9), control=0.95,
            selectivity=-0.15, selectivity_interval=(-0.3, 0.1),
        )
        for layer in (-1, 0, 11)
    )  # fmt: skip
    meaning = "the label of the token's word, of as many as --labels has"
    results = tuple(
        ProbeResult(
            name="label", meaning=meaning, kind=kind, n_labels=1234, n_fitted=56789,
            n_held_out=9876, majority=0.123, layers=layers,
        )
        for kind in ("enc", "dec")
    )  # fmt: skip
    summary = ModelSummary(name=model, n_encoder_layers=2, n_decoder_layers=2, n_heads=16, step=7)
    return ProbeReport(model=summary, n_sentences=1000, skipped=2, results=results)


def timeline_of():
    names = [rule.role for rule in ROLES]
    courses = [
        HeadCourse(head=head, roles=tuple(names[(n + i) % 8] for n in range(70)), metrics={})
        for i, head in enumerate(ALL_HEADS[::12])
    ]
    steps = tuple(12_500 * n for n in range(70))
    return HeadTimeline(run=f"{HEBREW}{LONG}", steps=steps, n_sentences=32, courses=tuple(courses))


@pytest.fixture(scope="module")
def chart(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    runs = []
    for name in (LONG * 2, WIDE, HEBREW, ARABIC):
        runs.append(root / name)
        runs[-1].mkdir()
        entries = [
            {"kind": "report", "step": n, "loss": 9 / n, "learning_rate": 1e-3, "seconds": n}
            for n in range(1, 9)
        ]
        text = "".join(f"{json.dumps(entry)}\n" for entry in entries)
        (runs[-1] / "metrics.jsonl").write_text(text)
    return make_chart(list(map(read_run, runs)), XName.step)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report on a corpus with empty, equal, marked-up and repeated sides."""
    names = [tmp_path_factory.mktemp("data") / f"{LONG}.{language}" for language in ("en", "fr")]
    sides = ((SOURCE, "<b>a</b>", "", SOURCE), (TARGET, "<i>a 12</i>", TARGET, SOURCE))
    for name, lines in zip(names, sides, strict=True):
        name.write_text("".join(f"{line}\n" for line in lines * 3), encoding="utf-8")
    return check_data(given_data([str(name) for name in names]))


@pytest.fixture(scope="module")
def biased(tmp_path_factory):
    """A model whose positions are learned biases of 16 heads."""
    path = tmp_path_factory.mktemp("biased") / f"{HEBREW}-{LONG}"
    return write_model(path, 1, positions="relative", max_positions=64)


@pytest.fixture(scope="module")
def draw(models, chart, report, biased):
    """Draws a view by its name on a console; records are made once."""
    model, other = models
    record = next(inspect_heads(model, [SOURCE], targets=[TARGET]))

    def view(name, **settings):
        return next(inspect_view(name, model, [SOURCE], targets=[TARGET], settings=settings))

    logits, flow = view("logits", lens=True), view("flow")
    step = view("step", token="0", head="cross.1.15")  # noqa: S106
    decision = inspect_decision(model, [SOURCE])
    layers = next(inspect_view("layers", model, [SOURCE], targets=[TARGET]))
    diff = inspect_diff(model, other, [SOURCE], targets=[TARGET])
    corpus = CorpusInspector(open_model(model, device="cpu", precision="float32", n_best=1))
    assert list(corpus.read([SOURCE, TARGET], [TARGET, SOURCE]))
    summaries = corpus.summaries()
    positions = view("positions")
    biases = next(inspect_view("positions", biased, [SOURCE], targets=[TARGET]))
    tokenizer = read_tokenizer(model)
    statistics = {f"/corpora/{name}/test.en": measure(tokenizer, [SOURCE]) for name in (LONG, WIDE)}
    scored = score_hypotheses([TARGET], [[SOURCE]])
    changes = WithoutHeads(
        source=SOURCE, whole=TARGET, without={"cross.0.15": TARGET, "cross.0": f"{WIDE} 12.5"}
    )
    evaluation = Evaluation(scores=scored.scores, hypotheses=(TARGET,), loss=1.2345)
    run = Path("runs/quickstart")
    labels = SimpleNamespace(n_examples=1000, accuracy=0.999, macro_f1=0.998)
    texts = SimpleNamespace(bits_per_byte=0.51, perplexity=4.2)
    quickstarts = {
        task: SimpleNamespace(
            samples=samples, evaluation=SimpleNamespace(scores=scores), n_test=1000,
            page=run / "heads.html", live_page=None if task == "image" else run / "page.html",
            training=SimpleNamespace(aligned=aligned),
        )
        for task, samples, scores, aligned in (
            ("translate", [(SOURCE, TARGET, SOURCE)], scored.scores, scores_of().best),
            ("rating", [(SOURCE, "2", "2"), (TARGET, "5", "1")], labels, None),
            ("language-model", [("", TARGET), (SOURCE, WIDE)], texts, None),
            ("image", [(LONG, "ring", "ring"), (WIDE, HEBREW, "cross")], labels, None),
        )
    }  # fmt: skip
    quickstarts["translate"].evaluation = evaluation
    looks = {"kind": "head", "class_token": 0.123, "distance": 123.456}
    looked = [Looked(name=str(head), shares=torch.rand(3, 4), **looks) for head in ALL_HEADS]
    images = ImageRecord(
        sentence=record,
        pixels=np.zeros((12, 16, 1), np.uint8),
        patch_size=4,
        row="class token",
        looked=tuple(looked),
    )
    systems = {"a": (TARGET, SOURCE), LONG: (f"{TARGET} x", WIDE)}
    compared = compare_tiny(("bleu", "ter"), systems, references=(TARGET, SOURCE))
    document = comparison_document([compared, compared])
    named = replace(record, heads=(HeadId("enc", 0, 0), HeadId("cross", 1, 15)))
    chosen, pruned = HeadsOptions(heads=("enc.0.0",)), ablation_of(model.name, has_scores=True)
    pruned = replace(pruned, pruning=pruning_of(model.name))

    def of(view, record, options=None):
        return lambda console: view.text(console, record, options)

    ways = {
        "HeadsView": [of(HeadsView(), record, HeadsOptions()), of(HeadsView(), named, chosen)],
        "ImageView": [of(ImageView(), images)],
        "LogitsView": [of(LogitsView(), logits)],
        "FlowView": [
            of(FlowView(), flow, FlowOptions(method=name)) for name in ("alti", "rollout")
        ],
        "StepView": [
            of(StepView(), record) for record in (step, replace(step, quiz=make_quiz(step, 1)))
        ],
        "DecisionView": [of(DecisionView(), decision, DecisionOptions())],
        "CircuitView": [
            of(CircuitView(), circuits_of(names), CircuitOptions())
            for names in ([HEBREW], [LONG, WIDE, HEBREW, "seed-4", "seed-5"])
        ],
        "LayersView": [of(LayersView(), layers)],
        "TunedView": [of(TunedView(), fitted_of())],
        "ProbeView": [of(ProbeView(), probes_of(name)) for name in (WIDE, "m")],
        "DiffView": [of(DiffView(), diff)],
        "CorpusView": [
            of(CorpusView(), CorpusRecord(summaries=summaries, rare_reason=f"no {LONG}"))
        ],
        "PositionsView": [of(PositionsView(), record) for record in (positions, biases)],
        "TimelineView": [of(TimelineView(), timeline_of())],
        "RepeatsView": [of(RepeatsView(), repeats_of(model.name))],
        "AlignmentView": [of(AlignmentView(), scores_of())],
        "ChangesView": [of(ChangesView(), changes)],
        "TextAblationView": [
            of(TextAblationView(), record)
            for record in (pruned, ablation_of(model.name, has_scores=False))
        ],
        "show_role_rules": [show_role_rules],
        "show_chart": [lambda c: show_chart(c, chart)],
        "show_speeds": [lambda c: show_speeds(c, speeds_of())],
        "show_statistics": [lambda c: show_statistics(c, statistics)],
        "show_document": [lambda c: show_document(c, document)],
        "show_evaluation": [lambda c: show_evaluation(c, evaluation)],
        "show_help": [lambda c, name=name: show_help(c, context_of(name)) for name in HELP],
        "show_list": [
            lambda c: show_list(
                c, [(LONG, f"{TARGET} {TARGET}"), ("b", f"{TARGET} 12.5"), (WIDE, SOURCE)]
            )
        ],
        "show_guide": [lambda c: show_guide(c, GUIDE)],
        "show_quickstart": [
            lambda c, task=task, quickstart=quickstart: show_quickstart(
                c, QUICKSTARTS[task], quickstart, run
            )
            for task, quickstart in quickstarts.items()
        ],
        "show_commands": [
            lambda c: show_commands(
                c,
                QUICKSTARTS["translate"].next_commands(run, run / "heads.html", run / "page.html"),
            )
        ],
        "data check": [lambda c: show_document(c, report_document(report))],
    }

    @cache
    def text_of(name, width, encoding="utf-8", **options):
        if name == "show_list":  # elsewhere than on a terminal its rows are not wrapped
            options |= {"force_terminal": True, "color_system": None}
        if name not in ways:
            pytest.fail(f"{name} is a view that is not drawn here: add it to `draw`, in this file")
        options |= {"width": width, "height": 50, "encoding": encoding, "errors": "replace"}
        return screens.draw_text(lambda console: [way(console) for way in ways[name]], **options)

    return text_of


HELP = ("translate", "inspect-heads", "train")
"""Commands whose help is drawn; all are compared in test_app.py."""


GUIDE = f"""# Topic

{SOURCE} {SOURCE}

| name | what it is |
|---|---|
| `--beam-size` | {TARGET} 12.5 |

```sh
tformer translate
```
"""


@cache
def context_of(name):
    command = typer.main.get_command(app).commands[name]
    return command.make_context(f"tformer {name}", [], resilient_parsing=True)


def _views():
    """The names of functions that show something on a console, and of views that have blocks."""
    names = []
    package = Path(tformer_cli.__file__).parent
    for path in sorted(
        path for folder in ("cli", "show") for path in (package / folder).rglob("*.py")
    ):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("show_"):
                takes_console = [
                    argument for argument in node.args.args if argument.arg == "console"
                ]
                names += [node.name] if takes_console else []
    for path in sorted(package.glob("**/views/*.py"), key=lambda path: path.name):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and "blocks" in [
                getattr(member, "name", "") for member in node.body
            ]:
                names.append(node.name)
    # all views are drawn by blocks, and test_classify.py draws the scores of labels
    return [name for name in names if name not in ("show_blocks", "show_scores")]


VIEWS = _views()
COPIED = ("tformer ", "echo ", "nrefs:", "Every head of ", "Type sentences ")
"""How lines begin that are not wrapped: commands and signatures, to be copied."""


def lines_of(text):
    return [line for line in text.splitlines() if not line.strip().startswith(COPIED)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", VIEWS)
def test_no_line_is_wider_than_the_terminal(draw, name, width):
    for options in ({}, {"encoding": "ascii"}):
        for line in lines_of(draw(name, width, **options)):
            assert cell_len(line) <= width, line
    colored = draw(name, width, force_terminal=True, color_system="truecolor")
    for line in lines_of(re.sub(r"\x1b\[[0-9;]*m", "", colored)):
        assert cell_len(line) <= width, line


NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")
MAY_DROP = {
    "LogitsView": "candidates, which are checked below",
    "FlowView": "tokens but the largest share, and columns of maps, which are counted",
    "HeadsView": "columns of maps, which are counted",
    "DiffView": "columns of the map, which are counted",
    "StepView": "components but the first ones, which are counted",
    "TimelineView": "steps between others, which are counted",
    "show_chart": "labels of axes",
    "PositionsView": "the stride of the map",
}
"""Views that may show fewer numbers in less room, and of what."""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [name for name in VIEWS if name not in MAY_DROP])
def test_no_number_is_lost(draw, name, width):
    whole, narrow = (Counter(NUMBER.findall(draw(name, columns))) for columns in (400, width))
    assert whole
    assert not whole - narrow


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [name for name in VIEWS if name not in ("show_chart",)])
def test_a_cut_label_has_an_ellipsis_and_keeps_a_part(draw, name, width):
    text = draw(name, width)
    assert not re.search(r"(?<!\S)…(?!\S)(?! \d+ more| \(| [+-]?\d)", text), (
        "a cell that says nothing"
    )
    if LONG in draw(name, 400):
        assert LONG[:3] in text or LONG[-3:] in text


@pytest.mark.parametrize("width", WIDTHS)
def test_the_measures_of_every_position_stand_below_each_other(draw, width):
    lines = draw("LogitsView", width).splitlines()
    head = next(place for place, line in enumerate(lines) if line.split()[:2] == ["read", "writes"])
    rows = lines[head + 1 : head + 9]
    ends = {name: cell_len(lines[head].split(name)[0] + name) for name in (" p", "rank", "entropy")}
    shapes = {" p": r"\d\.\d{3}", "rank": r"\d+", "entropy": r"\d\.\d\d"}
    for row in rows:
        match = re.search(r"  (\d\.\d{3}) +(\d+) +(\d\.\d\d)  \S", row)
        assert match, row
        for group, (name, end) in enumerate(ends.items(), 1):
            assert cell_len(row[: match.end(group)]) == end
            assert re.fullmatch(shapes[name], match[group])
        assert re.match(r"\S", row[match.end() - 1 :])
    assert "entropy in nats" in " ".join(" ".join(lines).split())
    lens = "\n".join(lines).split("logit lens")[1]
    assert all(f"layer {layer}" in lens for layer in range(2))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_share_of_the_source_stands_beside_every_token(draw, width):
    whole, narrow = (
        [
            re.search(r"[█░]{8,16} .*?(\d\.\d\d)  ", line)
            for line in draw("FlowView", w).splitlines()
        ]
        for w in (400, width)
    )
    shares, fewer = ([match[1] for match in found if match] for found in (whole, narrow))
    assert shares == fewer
    assert len(shares) == 16  # two methods, eight tokens


@pytest.mark.parametrize("width", WIDTHS)
def test_named_columns_of_a_step_are_all_there(draw, width):
    text = draw("StepView", width)
    for name in ("q·k", "÷ √d_k", "weight", "logit", "probability"):
        assert name in text
    flat = " ".join(text.split())
    for found in re.findall(r"max difference \S+", " ".join(draw("StepView", 400).split())):
        assert found in flat


def test_results_for_people_go_through_views_alone():
    """Hands a console of results to views alone, so that none can be forgotten above."""
    for path in sorted(Path(tformer_cli.cli.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        handed = {
            id(argument)
            for call in ast.walk(tree)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
            if call.func.id.lstrip("_").startswith("show")
            for argument in call.args
        }
        made = [
            call
            for call in ast.walk(tree)
            if isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id in ("stdout_console", "text_console", "file_console")
        ]
        if path.name != "streams.py":
            says = f"{path.name}: hand the console to a function show_…(console, …)"
            assert all(id(call) in handed for call in made), says
