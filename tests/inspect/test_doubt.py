"""Signals of doubt worked by hand, and calibration through the command."""

import json
import shutil
from math import log

import numpy as np
import pytest

import tformer_cli
from tests.commands import run
from tests.zoo import ENGLISH, FRENCH, recipe_of
from tformer_cli.artifacts.doubt_file import read_calibration
from tformer_cli.documents.segments import Segment, Span
from tformer_cli.documents.translating import Answer, translating
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.inspect.doubt import (
    SIGNALS,
    Doubter,
    Part,
    parts_of,
    probabilities,
    signals_of,
)
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.instruments.commands.calibrate import table
from tformer_cli.plugins.instruments.jobs.calibrate import (
    BROKEN_SOURCES,
    BROKEN_TARGETS,
    NATURAL,
    CalibrationReport,
    KindReport,
    Lines,
    fit_lines,
)
from tformer_cli.search.translator import Doubt


def part(**changes):
    fields = {
        "steps": (log(0.5), log(0.25), log(0.5)),
        "source_ids": (5, 6), "target_ids": (7, 8),
        "source_words": ("Ada", "slept."), "target_words": ("Ada", "dort", "3"),
    }  # fmt: skip
    return Part(**{**fields, **changes})


def signals(given_part, log_ratio=0.0):
    values = signals_of(given_part, log_ratio)
    return dict(zip([signal.name for signal in SIGNALS], values, strict=True))


def test_signals_are_those_of_the_formulas():
    values = signals(part(), log_ratio=log(2))
    assert values["probability"] == pytest.approx(log(0.5 * 0.25 * 0.5) / 3)
    # Entropies of fair and of 1:3 coins
    entropies = [entropy([p, 1 - p]) for p in (0.5, 0.25, 0.5)]
    assert values["uncertainty"] == pytest.approx(np.mean(entropies))
    assert values["tokens"] == pytest.approx(log(3))
    assert values["length"] == pytest.approx(log(2))
    assert values["pieces"] == 0
    assert values["names"] == 0
    assert values["copied"] == 0.5
    assert values["repeated"] == 0
    assert values["word-length"] == pytest.approx(8 / 3)
    # A token that is certain has no uncertainty, and costs no infinity
    assert signals(part(steps=(0.0, 0.0, 0.0)))["uncertainty"] == pytest.approx(0, abs=1e-7)
    words = ("Ada", "and", "Bo", "met", "Ada", "Ada")
    values = signals(part(source_words=words, target_words=words, source_ids=(1,) * 12))
    assert values["names"] == pytest.approx(3 / 6)
    assert values["repeated"] == pytest.approx(2 / 6)
    assert values["copied"] == 1
    assert values["pieces"] == pytest.approx(log(2))
    empty = signals(part(target_words=(), target_ids=(), steps=(-1.0,)))
    assert (empty["copied"], empty["repeated"], empty["word-length"]) == (0, 0, 0)
    assert empty["length"] == pytest.approx(log(3))


def entropy(shares):
    return -sum(share * log(share) for share in shares)


def test_probabilities_are_the_formula_and_odd_signals_are_cut(calibrated):
    stored = read_calibration(calibrated[0])
    row = np.array(stored.means) + 2 * np.array(stored.deviations)
    row[0] = stored.means[0] + 99 * stored.deviations[0]
    z = np.array([8.0, *[2.0] * (len(SIGNALS) - 1)])
    half = len(SIGNALS)
    odds = stored.weights[:half] @ z + stored.weights[half:] @ z**2 + stored.intercept
    squares = [weight != 0 for weight in stored.weights[half:]]
    assert squares == [signal.has_square for signal in SIGNALS]
    assert probabilities(stored, [row]) == pytest.approx(1 / (1 + np.exp(-odds)))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for name, lines in (("en", ENGLISH), ("fr", FRENCH)):
        odd = [f"{line} {n}" for n in range(8) for line in lines]
        (folder / f"held.{name}").write_text("".join(f"{line}\n" for line in odd), newline="")
    return folder


@pytest.fixture(scope="module")
def calibrated(zoo, texts, tmp_path_factory):
    path = tmp_path_factory.mktemp("calibrated") / "m"
    shutil.copytree(zoo["translate"], path)
    done = calibrate(path, texts)
    assert done.exit_code == 0, done.stderr
    assert "--below: no line has a chrF below 0, so --doubt is fitted only to" in done.stderr
    return path, json.loads(done.stdout)


def calibrate(path, texts, *options):
    held = ["-i", texts / "held.en", "--reference", texts / "held.fr"]
    return run("calibrate", path, *held, "--below", 0, "--format", "json", "-q", *options)


def test_a_report_has_every_kind_and_every_number(calibrated):
    path, report = calibrated
    assert report["schema"] == "tformer.calibration/1"
    kinds = [kind["kind"] for kind in report["kinds"]]
    assert kinds == ["chrF", "lower half", *BROKEN_SOURCES, *BROKEN_TARGETS]
    assert (report["lines"], report["wrong"], report["kinds"][0]["auroc"]) == (64, 0, None)
    assert all(0 <= kind["auroc"] <= 1 for kind in report["kinds"][1:])
    assert report["signals"].keys() == {signal.name for signal in SIGNALS}
    stored = read_calibration(path)
    assert stored.scores["auroc"] == pytest.approx(report["measures"]["auroc"]["doubt"], abs=1e-6)
    assert run("info", path).stdout.count("calibrated by 64 lines: AUROC") == 1


@pytest.mark.parametrize("others_help", [True, False])
def test_only_the_probability_is_weighed_where_all_signals_tell_fewer_lines_apart(others_help):
    random = np.random.default_rng(1)
    kind = np.array([NATURAL, "noise"] * 40)
    is_wrong = (kind == "noise").astype(float)
    signals = random.normal(size=(80, len(SIGNALS)))
    signals[:, 0] += is_wrong
    signals[:, 1] += 3 * is_wrong if others_help else 0
    lines = Lines(np.arange(80) // 2, kind, signals, is_wrong, is_wrong, np.ones(80))
    fit, report = fit_lines(lines)
    doubt, alone = report.measures["auroc"]
    assert report.is_alone is not others_help
    assert (doubt > alone) is others_help
    assert (np.count_nonzero(fit.weights) == 1) is not others_help
    assert fit.weights[0] > 0


def test_a_kind_of_which_nothing_is_wrong_has_a_dash():
    rows = [KindReport(kind=NATURAL, lines=9, auroc=float("nan"), auroc_of_probability=0.5)]
    errors = (
        "calibration_error",
        "calibration_error_given",
        *(f"error_at_{n}" for n in (50, 80, 90)),
    )
    report = CalibrationReport(
        lines=9,
        wrong=0,
        kinds=tuple(rows),
        measures=dict.fromkeys(("auroc", *errors), (0.5, 0.5)),
        signals={},
        is_alone=False,
    )
    assert f"{NATURAL:<36}      9       -   0.500" in list(table(report))


def test_the_same_text_and_seed_give_the_same_file(calibrated, texts, zoo, tmp_path):
    for seed in (1, 2):
        shutil.copytree(zoo["translate"], tmp_path / f"m{seed}")
        assert calibrate(tmp_path / f"m{seed}", texts, "--seed", seed).exit_code == 0
    first, second = ((tmp_path / f"m{seed}" / "doubt.json").read_bytes() for seed in (1, 2))
    assert first == (calibrated[0] / "doubt.json").read_bytes() != second


def test_what_is_read_by_force_is_what_a_search_heard(zoo):
    heads, options = [(0, 0), (0, 1)], {"device": "cpu", "split_sentences": "none"}
    translator = open_model(zoo["translate"], **options).translator.listening(heads)
    translations = translator.translate(ENGLISH)
    targets = [translation.hypotheses[0].token_ids for translation in translations]
    for engine in ("tformer", "torch"):
        same = open_model(zoo["translate"], engine=engine, **options).translator
        forced = same.listening(heads).score([t.source_ids for t in translations], targets)
        for translation, other in zip(translations, forced, strict=True):
            steps = translation.hypotheses[0].token_log_probabilities
            assert other.token_log_probabilities == pytest.approx(steps, abs=1e-4)
            weights = translation.hypotheses[0].attention[0].weights
            assert other.attention.weights == pytest.approx(weights, abs=1e-5)
    assert same.score([(5, 6)], [(7,)])[0].attention is None


def test_doubt_changes_no_translation(calibrated, zoo):
    path, _ = calibrated
    lines = "".join(f"{line}\n" for line in [*ENGLISH, "", " ".join(ENGLISH)])
    plain, doubted = (
        [json.loads(line) for line in done.stdout.splitlines()]
        for done in (
            run("translate", path, "--format", "jsonl", "--flags", "-q", *more, stdin=lines)
            for more in (["--no-doubt"], ["--doubt"])
        )
    )
    for translation, other in zip(plain, doubted, strict=True):
        doubt, words = other.pop("doubt"), other.pop("word_probabilities")
        assert ("doubt" in other["flags"]) == (doubt >= 0.5)
        other["flags"] = [flag for flag in other["flags"] if flag != "doubt"]
        assert translation == other
        assert 0 <= doubt <= 1
        assert [word for word, _ in words] == other["translation"].split()
    assert (doubted[len(ENGLISH)]["translation"], plain[-1]["index"]) == ("", len(ENGLISH) + 1)
    tsv = run("translate", path, "--format", "tsv", "--doubt", "-q", "--alignments", "pharaoh",
              stdin=lines).stdout  # fmt: skip
    columns = [line.split("\t") for line in tsv.splitlines()]
    assert {len(column) for column in columns} == {6}
    again = run("translate", path, "--format", "jsonl", "--doubt", "-q", stdin=lines).stdout
    expected = [json.loads(line)["doubt"] for line in again.splitlines()]
    assert [float(column[4]) for column in columns] == expected


def test_jsonl_of_a_calibrated_model_has_doubt_without_words(calibrated, zoo, tmp_path):
    path, _ = calibrated
    line = ["translate", path, "A dog.", "--format", "jsonl"]
    asked = json.loads(run(*line, "--doubt", "-q").stdout)
    assert asked.pop("word_probabilities")
    done = run(*line)
    assert json.loads(done.stdout) == asked
    assert "doubt" not in done.stderr
    # Other formats stay, and so does what has no calibration
    others = (["--format", "text"], ["--format", "tsv"], ["--format", "moses"], ["--protect"],
              ["--sampling"], ["--ensemble", path], ["--no-doubt"])  # fmt: skip
    for more in others:
        words = [word for word in line if more[0] != "--format" or word not in line[3:]]
        done = run(*words, *more, "-q")
        assert (done.exit_code, done.stderr) == (0, "")
        assert "doubt" not in done.stdout
    tsv = run(*line[:3], "--format", "tsv", "-q").stdout
    assert len(tsv.split("\t")) == 4
    # A field of the user is kept aside, as are all whose names are ours
    record = json.dumps({"source": "A dog.", "doubt": "mine"})
    done = run("translate", path, "--input-format", "jsonl", *line[3:], "-q", stdin=record + "\n")
    both = json.loads(done.stdout)
    assert (both["doubt"], both["input_fields"]) == (asked["doubt"], {"doubt": "mine"})
    shutil.copytree(path, tmp_path / "m")
    file = tmp_path / "m" / "doubt.json"
    line[1] = tmp_path / "m"
    for change, says in (
        ({"step": 7}, f"{tmp_path / 'm'}: was calibrated at step 7"),
        ({"schema": "tformer.doubt/1"}, f"{file}: was written by an earlier version"),
        ({"signals": "all"}, f"{file}: signals: must be"),
    ):
        file.write_text(json.dumps({**json.loads((path / "doubt.json").read_text()), **change}))
        done = run(*line, "-q")
        assert (done.exit_code, "doubt" in done.stdout) == (0, False)
        assert f"warning: no doubt scores: {says}" in done.stderr
        page = tmp_path / "page.html"
        done = run("export", tmp_path / "m", "--format", "page", "-o", page, "--force", "-q")
        assert (done.exit_code, page.is_file()) == (0, True)
        assert f"warning: no doubt scores in the page: {says}" in done.stderr
        page.unlink()


def test_the_doubt_of_several_sentences_is_that_of_the_worst(calibrated):
    path, _ = calibrated
    opened = open_model(path, device="cpu", split_sentences="rule")
    doubter = Doubter(opened.directory)
    translator = opened.translator
    (line,) = translator.translate([ENGLISH[-1]])
    assert line.n_parts == 2
    alone = doubter.add_doubts(translator.translate(list(line.parts)))
    each = tuple(t.doubt.probability for t in alone)
    (doubted,) = doubter.add_doubts([line])
    assert (doubted.doubt.probability, doubted.doubt.sentences) == (max(each), each)
    assert [word for t in alone for word in t.doubt.words] == list(doubted.doubt.words)
    parts = list(parts_of(line.hypotheses[0], line, opened.directory.tokenizer.target))
    assert sum(len(own.steps) for own in parts) == len(line.hypotheses[0].token_log_probabilities)


def test_words_have_the_product_of_their_tokens(calibrated):
    path, _ = calibrated
    done = run("translate", path, "A man sleeps.", "--format", "jsonl", "--doubt", "--token-scores")
    record = json.loads(done.stdout)
    product = np.prod([value for _, value in record["word_probabilities"]])
    # The end of sentence belongs to no word
    assert product == pytest.approx(
        np.exp(sum(record["token_log_probabilities"][:-1])), abs=1e-3, rel=0.1
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"step": 7}, "was calibrated at step 7, and is now at step 1; run `tformer calibrate"),
        ({"signals": ["a"] * len(SIGNALS)}, "was calibrated with other signals; run `tformer cal"),
        ({"means": [0.0]}, "do not belong together; remove it, and run `tformer calibrate` again"),
        ({"deviations": [0.0] * len(SIGNALS)}, "numbers that cannot be; remove it"),
        ({"signals": "all"}, "doubt.json: signals: must be"),
        ({"schema": "tformer.doubt/1"}, "was written by an earlier version; run `tformer calibr"),
        ({"new": 1}, "doubt.json: new: unknown key"),
    ],
)
def test_another_calibration_is_refused(calibrated, tmp_path, change, says):
    shutil.copytree(calibrated[0], tmp_path / "m")
    file = tmp_path / "m" / "doubt.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    done = run("translate", tmp_path / "m", "A dog.", "--format", "tsv", "--doubt")
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr
    # Without --doubt nobody asks for it
    assert run("translate", tmp_path / "m", "A dog.").exit_code == 0


def test_what_changes_a_translation_afterwards_has_no_doubt(calibrated):
    words = ["translate", calibrated[0], "A dog.", "--format", "tsv", "--doubt", "--protect"]
    assert "--doubt: does not go with --protect" in run(*words).stderr


def test_calibration_goes_along_with_an_export(calibrated, tmp_path):
    done = run("export", calibrated[0], "--format", "int8", "-o", tmp_path / "int8", "-q")
    assert done.exit_code == 0, done.stderr
    kept = (tmp_path / "int8" / "doubt.json").read_bytes()
    assert kept == (calibrated[0] / "doubt.json").read_bytes()
    words = ["translate", tmp_path / "int8", "A dog.", "--format", "tsv", "--doubt", "-q"]
    assert len(run(*words).stdout.split("\t")) == 5


def test_too_little_text_and_nothing_right_are_refused(zoo, texts, tmp_path):
    shutil.copytree(zoo["translate"], tmp_path / "m")
    few = tmp_path / "few"
    held = ["-i", few, "--reference", few]
    for lines, pairs in (
        ([*"abcdefghi"], "9 pairs with text, too few"),
        (["the same line"] * 120, "1 pair with text (119 repeats omitted), too few"),
        ([*"abcdefghijk"] * 30, "11 pairs with text (319 repeats omitted), too few"),
    ):
        few.write_text("".join(f"{line}\n" for line in lines))
        assert f"--source: has {pairs}" in run("calibrate", tmp_path / "m", *held).stderr
    done = calibrate(tmp_path / "m", texts, "--below", 1)
    assert "--below: all of 64 lines have a chrF below 1, but at least" in done.stderr
    assert not (tmp_path / "m" / "doubt.json").exists()


def test_an_adapter_is_another_model(calibrated, zoo, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(recipe_of("translate", zoo.inputs) + "[adapter]\nrank = 2\n")
    trained = run("train", recipe, "--from", calibrated[0], "-o", tmp_path / "run", "-q")
    assert trained.exit_code == 0, trained.stderr
    adapter = ("--adapter", tmp_path / "run")
    says = "--adapter: --doubt is calibrated without it"
    assert (
        says in run("translate", calibrated[0], "a", "--format", "tsv", "--doubt", *adapter).stderr
    )
    text = ("-i", zoo.inputs / "text.en", "--reference", zoo.inputs / "text.fr")
    says = "--adapter: MODEL keeps the calibration, but not the adapter"
    assert says in run("calibrate", calibrated[0], *text, *adapter).stderr
    for more, has_doubt in (((), True), (adapter, False)):
        out = tmp_path / f"int8-{has_doubt}"
        assert run("export", calibrated[0], "--format", "int8", "-o", out, *more).exit_code == 0
        assert (out / "doubt.json").exists() is has_doubt


PAGE = (
    "<p>A man sleeps.</p><h1>Two dogs</h1><p>See <a href='x'>the dog</a>!</p><p>17</p><p>A\tman</p>"
)


def test_a_document_is_listed_with_the_most_doubtful_segments_first(calibrated, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    words = ["translate", calibrated[0], page, "-q", "--force", "-o"]
    assert run(*words, tmp_path / "plain.html").stdout == ""
    tsv = run(*words, tmp_path / "out.html", "--doubt")
    assert (tmp_path / "out.html").read_bytes() == (tmp_path / "plain.html").read_bytes()
    rows = [line.split("\t") for line in tsv.stdout.splitlines()]
    doubts = [float(row[0]) for row in rows]
    assert doubts == sorted(doubts, reverse=True)
    assert {(row[1], row[2]) for row in rows} == {("0", "p"), ("1", "h1"), ("2", "p"), ("4", "p")}
    jsonl = run(*words, tmp_path / "out.html", "--doubt", "--format", "jsonl")
    records = [json.loads(line) for line in jsonl.stdout.splitlines()]
    assert list(records[0]) == [
        "doubt", "segment", "context", "source", "translation", "doubtful_words"
    ]  # fmt: skip
    for cells, row in zip(rows, records, strict=True):
        texts = [str(row[name]).replace("\t", " ") for name in ("source", "translation")]
        assert cells[1:5] == [str(row["segment"]), row["context"], *texts]
        assert (cells[0], cells[5]) == (f"{row['doubt']:.4f}", " ".join(row["doubtful_words"]))
    # Lines have the same doubt, and a word is doubtful that the model finds improbable
    line = run("translate", calibrated[0], "A man sleeps.", "--format", "jsonl", "--doubt", "-q")
    alone, (first,) = json.loads(line.stdout), [r for r in records if r["segment"] == 0]
    assert first["doubt"] == alone["doubt"]
    assert first["doubtful_words"] == [word for word, p in alone["word_probabilities"] if p < 0.2]


def test_the_list_of_a_document_needs_stdout(calibrated, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    words = ["translate", calibrated[0], "-i", page, "--doubt", "-q"]
    for more, what, option in (
        ((), "document", "-o"),
        (("-o", "/dev/stdout"), "document", "-o"),
        (("-o", "/dev/fd/1"), "document", "-o"),
        (("-o", tmp_path / "out.html", "--summary", "-"), "summary", "--summary"),
        (("-o", tmp_path / "out.html", "--summary", "/dev/stdout"), "summary", "--summary"),
    ):
        done = run(*words, *more)
        assert (done.exit_code, done.stdout) == (2, "")
        assert f"--doubt: stdout has the {what}; name a file for that with {option}" in done.stderr
        assert not (tmp_path / "out.html").exists()


def test_what_is_translated_in_pieces_has_the_doubt_of_the_worst():
    segment = Segment("See the dog", (Span(4, 11, "once", "<a>", "</a>"),))
    job = translating([segment], protects=False)
    assert [piece.text for piece in next(job)] == ["See the dog"]
    pieces = job.send([Answer("VOIR LE CHIEN", None, (), 0.9, ("VOIR",))])
    assert [piece.text for piece in pieces] == ["See", "the dog"]
    with pytest.raises(StopIteration) as end:
        job.send([Answer("Voir", (), (), 0.25, ()), Answer("le chien", (), (), 0.5, ("chien",))])
    (row,) = end.value.value.summary.doubt_lines("tsv")
    assert row == "0.5000\t0\t\tSee the dog\tVoir le chien\tchien"


def test_python_gets_the_doubt_of_each_hypothesis(calibrated):
    lines = [*ENGLISH, ""]
    loaded = tformer_cli.load(calibrated[0], device="cpu")
    translations = loaded.translate(lines, n_best=2, doubt=True)
    stdin = "".join(f"{line}\n" for line in lines)
    done = run("translate", calibrated[0], "--format", "jsonl", "--n-best", 2, "--doubt", "-q",
               stdin=stdin)  # fmt: skip
    for line, text in zip(translations, done.stdout.splitlines(), strict=True):
        record = json.loads(text)
        assert (line.text, line.doubt.probability) == (record["translation"], record["doubt"])
        assert [list(pair) for pair in line.doubt.words] == record["word_probabilities"]
        each = [other["doubt"] for other in record["hypotheses"]]
        assert [other.doubt.probability for other in line.hypotheses] == each
    assert (translations[-1].doubt, translations[-1].doubt.is_likely) == (Doubt(0.0, (), ()), False)
    # Read line by line it is the same, and nobody pays for it who does not ask
    again = loaded.translate(lines, n_best=2, doubt=True, buffer_lines=1)
    assert [t.doubt for t in again] == [t.doubt for t in translations]
    assert loaded.translate(["A dog."])[0].doubt is None


def test_python_is_told_what_has_no_doubt(calibrated, zoo, tmp_path):
    with pytest.raises(ArtifactError, match="doubt is not calibrated; run `tformer calibrate"):
        tformer_cli.load(zoo["translate"]).translate(["A dog."], doubt=True)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(recipe_of("translate", zoo.inputs) + "[adapter]\nrank = 2\n")
    run("train", recipe, "--from", calibrated[0], "-o", tmp_path / "run", "-q")
    adapted = tformer_cli.load(calibrated[0], adapter=tmp_path / "run")
    with pytest.raises(UsageError, match="doubt: was calibrated without the adapter"):
        adapted.translate(["A dog."], doubt=True)


def test_another_search_is_told_where_it_matters(calibrated, tmp_path, capsys):
    search = read_calibration(calibrated[0]).search
    assert search == {
        "beam_size": 3, "length_penalty": 0.6, "precision": "float32", "sampling": False,
        "shortlist": False,
    }  # fmt: skip
    line = ["translate", calibrated[0], "A dog.", "--format", "tsv", "--doubt", "-q"]
    for same in (["--beam-size", 1], ["--length-penalty", 2], ["--precision", "int8"]):
        assert run(*line, *same).stderr == ""
    message = (
        "warning: doubt was calibrated without sampling but the search is with sampling, so its "
        "probabilities do not apply; run `tformer calibrate` with the same options\n"
    )
    assert run(*line, "--sampling").stderr == message
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    words = [calibrated[0], page, "-o", tmp_path / "out.html", "--doubt", "-q", "--sampling"]
    assert run("translate", *words).stderr.startswith(message)
    loaded = tformer_cli.load(calibrated[0], device="cpu")
    capsys.readouterr()
    loaded.translate(["A dog."], doubt=True, beam_size=2)
    assert capsys.readouterr().err == ""
    loaded.translate(["A dog."], doubt=True, sampling=True)
    assert capsys.readouterr().err == message.removeprefix("warning: ")
    # A calibration that does not say how it was fitted is believed
    shutil.copytree(calibrated[0], tmp_path / "m")
    file = tmp_path / "m" / "doubt.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "search": {}}))
    line[1] = tmp_path / "m"
    assert run(*line, "--sampling").stderr == ""
