import io
import re
from dataclasses import replace

import pytest
from rich.console import Console
from rich.live import Live

from tformer_cli.cli.commands import training_progress as progress
from tformer_cli.cli.commands.training_progress import (
    Dashboard,
    PlainView,
    clock,
    duration,
    event_lines,
    sparkline,
    training_progress,
    warnings,
)
from tformer_cli.kinds import kind_named
from tformer_cli.trainer.config import METRICS
from tformer_cli.trainer.events import (
    BatchSplit,
    CheckpointWritten,
    PaceMeasured,
    RolledBack,
    RunEnded,
    RunStarted,
    StepDone,
    StepReport,
    ValidationReport,
)

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STARTED = RunStarted(
    step=0, n_parameters=12345, device="cpu", precision="float32", n_pairs=300, vocab_size=280,
    batches_per_epoch=31, notes=("a.tsv: 300 pairs; [left] out",),
)  # fmt: skip

PAIRS = kind_named("translate").training.examples


def report(step=50, share_done=0.25):
    return StepReport(
        step=step, epoch=1.5, loss=3.25, perplexity=25.0, learning_rate=1e-3, gradient_norm=1.0,
        tokens_per_second=4321.0, padding=0.05, tokens=10_000, seconds=60.0, share_done=share_done,
    )  # fmt: skip


def validation(weights="current"):
    return ValidationReport(
        step=50,
        scores={"bleu": 12.345, "chrf": 40.0, "loss": 3.0, "perplexity": 20.0},
        signatures={},
        is_best=True,
        seconds=2.0,
        sample_source="A [bold]cat[/] \x1b[31m" + "long " * 40,
        sample_translation="Un chat\x07",
        sample_reference="Un [/chat",
        weights=weights,
    )


ENDED = RunEnded(
    step=100, reason="max_steps = 100 is reached", seconds=61, averaged_steps=(90, 100)
)
PACE = PaceMeasured(step=0, n_steps=100, seconds=61.0)
EVENTS = [
    STARTED, PACE, report(), report(100, 0.0), validation(), CheckpointWritten(step=50),
    validation("average"), ENDED,
]  # fmt: skip


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_dashboard_draws_every_event_at_every_width(width):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, height=50)
    with Live(console=console, auto_refresh=False) as live:
        view = Dashboard(live, PAIRS)
        view.prepare("encoding [a.tsv]", 1000)
        for event in EVENTS:
            view.notify(event)
    shown = screen.getvalue()
    expected = (
        "encoding [a.tsv] … 1,000 pairs",
        "about 61 s on",
        "12.3",
        "[bold]cat[/]",
        "finished in 1:01",
    )
    for text in expected:
        assert text in shown.replace("\n", " "), text
    assert "\x1b[31m" not in shown, "text of the corpus must not steer the terminal"
    assert "\x07" not in shown


def test_the_bar_moves_before_the_first_report_and_at_most_once_a_second(monkeypatch):
    screen, now = io.StringIO(), 100.0
    monkeypatch.setattr(progress, "monotonic", lambda: now)
    with Live(console=Console(file=screen, force_terminal=True), auto_refresh=False) as live:
        view = Dashboard(live, PAIRS)
        view.notify(STARTED)
        sizes = []
        for step in (1, 2, 3, 4):
            now += 0.6
            view.notify(StepDone(share_done=step / 8, seconds=6.0 * step))
            sizes.append(len(screen.getvalue()))
    assert sizes[0] < sizes[1] == sizes[2] < sizes[3]
    assert "25%" in screen.getvalue()
    last = screen.getvalue().rpartition("tformer train")[2]
    assert "50%" in last
    assert "0:24 left" in last
    assert "waiting for the first report" in last


def test_a_run_that_ends_before_its_first_report_waits_for_none():
    screen = io.StringIO()
    with Live(console=Console(file=screen, force_terminal=True), auto_refresh=False) as live:
        view = Dashboard(live, PAIRS)
        for event in (STARTED, ENDED):
            view.notify(event)
    assert "waiting for the first report" not in screen.getvalue().rpartition("tformer train")[2]


def test_images_have_no_vocabulary():
    assert "vocabulary" not in event_lines(replace(STARTED, vocab_size=0))[-1]


def test_a_pipe_gets_plain_lines(monkeypatch):
    console = Console(file=io.StringIO(), width=40, soft_wrap=True)
    monkeypatch.setattr(progress, "stderr_console", lambda: console)
    view = PlainView(PAIRS)
    for event in EVENTS:
        view.notify(event)
    lines = console.file.getvalue().splitlines()
    assert "\x1b" not in console.file.getvalue()
    assert lines[0] == "a.tsv: 300 pairs; [left] out"
    assert lines[1].startswith("starting: 12,345 parameters, vocabulary 280, cpu, float32; 300")
    assert lines[2] == "training 100 steps: about 61 s on this machine"
    assert lines[3].startswith("step 50, epoch 1.50: loss 3.250, perplexity 25.00")
    assert lines[3].endswith("1:00, 3:00 left")
    assert lines[4].endswith(", 1:00")
    assert lines[5].startswith("validation of step 50: BLEU 12.35")
    assert lines[-1] == ("finished in 1:01: max_steps = 100 is reached; average of steps 90, 100")


def test_preparation_is_reported_every_few_seconds(monkeypatch):
    console, now = Console(file=io.StringIO()), [0.0]
    monkeypatch.setattr(progress, "stderr_console", lambda: console)
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    view = PlainView(PAIRS)
    for second in range(13):
        now[0] = float(second)
        view.prepare("reading", 1000 * second)
    assert console.file.getvalue().splitlines() == ["reading: 6,000 pairs", "reading: 12,000 pairs"]


def test_quiet_shows_nothing(capfd):
    with training_progress(PAIRS, quiet=True) as view:
        view.prepare("reading", 1)
        for event in EVENTS:
            view.notify(event)
    assert capfd.readouterr() == ("", "")


def test_a_resumed_run_reports_its_step():
    assert event_lines(replace(STARTED, step=1200))[-1].startswith("resuming from step 1,200: ")


def test_the_share_of_the_hardware_is_shown_where_it_was_measured():
    (line,) = event_lines(replace(report(), hardware_share=0.612))
    assert "4,321 tokens/s · 61% of the hardware's limit, padding" in line
    (line,) = event_lines(report())
    assert "4,321 tokens/s, padding" in line


def test_curves_show_means_from_low_to_high():
    assert sparkline([], 5) == ""
    assert sparkline([2.0], 5) == "▁"
    assert sparkline([0.0, 1.0], 5) == "▁█"
    curve = sparkline([float(n) for n in range(1000)], 8)
    assert curve == "▁▂▃▄▅▆▇█"


def test_durations_read_like_a_clock():
    assert [clock(s) for s in (0, 7.4, 754, 3723, 360_000)] == [
        "0:00",
        "0:07",
        "12:34",
        "1:02:03",
        "100:00:00",
    ]


def test_a_checkpoint_better_than_the_average_is_named():
    ended = RunEnded(step=9, reason="why", seconds=1.0, averaged_steps=(), better_step=1500)
    assert event_lines(ended) == [
        "finished in 0:01: why; step 1,500, which scores better than the average"
    ]


@pytest.mark.parametrize("quiet", [True, False])
def test_a_failure_is_one_line_even_when_quiet(capsys, quiet):
    events = [
        RolledBack(step=0, failed_step=7, problem="the loss rose", learning_rate_factor=0.5),
        BatchSplit(step=3, n_parts=2),
        RunEnded(step=9, reason="", seconds=1.0, averaged_steps=(), damaged=("is damaged (a)",)),
    ]
    assert [len(warnings(event)) for event in events] == [1, 1, 1]
    assert (
        "rolled back to the initial weights; from now on learning rates × 0.5"
        in warnings(events[0])[0]
    )
    with training_progress(PAIRS, quiet=quiet) as view:
        view.notify(events[0])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("warning: step 7: the loss rose;")


def test_a_resumption_estimates_the_remaining_time():
    pace = PaceMeasured(step=300, n_steps=1100, seconds=220.0)
    line = "training the remaining 1,100 steps: about 3 min 40 s on this machine"
    assert event_lines(pace) == [line]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"), (89.4, "89 s"), (91.0, "1 min 30 s"), (118.0, "2 min"),
        (223.0, "3 min 40 s"), (599.0, "10 min"), (1510.0, "25 min"), (5700.0, "1 h 40 min"),
        (7190.0, "2 h"), (273_600.0, "3 d 4 h"), (259_200.0, "3 d"),
    ],
)  # fmt: skip
def test_an_estimate_is_written_in_units_that_it_can_know(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("translate", ["source", "translation", "reference"]),
        ("classify", ["text", "prediction", "label"]),
        ("image", ["image", "prediction", "label"]),
        ("language-model", ["beginning", "continuation", "original"]),
        ("masked", ["text", "prediction", "original"]),
    ],
)
def test_a_kind_has_its_own_words(kind, names):
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=50)
    with Live(console=console, auto_refresh=False) as live:
        view = Dashboard(live, kind_named(kind).training.examples)
        view.prepare("reading", 1000)
        view.notify(STARTED)
        view.notify(validation())
    shown = CODES.sub("", console.file.getvalue())
    assert ("1,000 pairs" in shown) == (kind == "translate")
    every = {name for task in METRICS for name in kind_named(task).training.examples[1:4]}
    found = [word for word in re.findall(r"[a-z]+", shown) if word in every]
    assert list(dict.fromkeys(found)) == names


def test_lines_above_the_dashboard_are_wrapped_by_words():
    console = Console(file=io.StringIO(), force_terminal=True, width=40, soft_wrap=True)
    with Live(console=console, auto_refresh=False) as live:
        Dashboard(live, PAIRS).notify(STARTED)
    shown = [CODES.sub("", line).strip("\r") for line in console.file.getvalue().split("\n")]
    (first,) = [n for n, line in enumerate(shown) if line.startswith("starting")]
    assert all(len(line) <= 40 for line in shown[first : first + 3])
    whole = " ".join(line.strip() for line in shown[first : first + 3])
    assert whole.startswith(
        "starting: 12,345 parameters, vocabulary 280, cpu, float32; 300 pairs, 31 batches per epoch"
    )
