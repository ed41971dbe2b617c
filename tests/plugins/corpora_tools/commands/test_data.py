import gzip
import json
import random
import re
import shutil
from html.parser import HTMLParser
from itertools import chain

import pytest

from tests.commands import under
from tests.plugins.corpora_tools.quality.test_checks import ENGLISH, FRENCH
from tests.policy import POLICY
from tformer_cli.plugins.built_in.grammar.generate import generate_corpus
from tformer_cli.plugins.corpora_tools.quality.examine import judge

N = 60


output_of, record_of, refused, run = under("data", "output_of", "record_of", "refused", "run")


def make_pairs(n_pairs, seed=1):
    return [(pair.source, pair.target) for _, pair in generate_corpus(n_pairs, seed)][:n_pairs]


@pytest.fixture
def noisy(tmp_path, monkeypatch):
    """A corpus with damage in lines 11 to 15."""
    monkeypatch.chdir(tmp_path)
    pairs = make_pairs(N)
    pairs[10] = ("", pairs[10][1])
    pairs[11] = (f"<p>{pairs[11][0]}</p>", pairs[11][1])
    pairs[12] = (pairs[0][0].upper(), pairs[0][1])
    pairs[13] = (pairs[13][0], pairs[13][1] + " \x07")
    pairs[14] = (pairs[1][0], FRENCH)
    write("a.en", [pair[0] for pair in pairs])
    write("a.fr", [pair[1] for pair in pairs])
    return pairs


def write(name, lines):
    with open(name, "w", encoding="utf-8", newline="\n") as file:  # noqa: PTH123
        file.writelines(line + "\n" for line in lines)


def read(path):
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


CHECKS = "empty,markup,invisible,duplicate"


def test_check_counts_shows_and_names_the_command_that_mends(noisy, tmp_path):
    report = record_of("check", "a.en", "a.fr", "--only", CHECKS, "--format", "json")
    assert (report["schema"], report["pairs"], report["dropped"]) == ("tformer.datacheck/1", N, 4)
    assert report["languages"] == ["en", "fr"]
    found = {check["check"]: check for check in report["checks"]}
    assert {name: check["pairs"] for name, check in found.items()} == dict.fromkeys(
        CHECKS.split(","), 1
    )
    assert found["duplicate"]["examples"] == [
        {
            "corpus": "a.en, a.fr",
            "line": 13,
            "source": noisy[12][0],
            "target": noisy[12][1],
            "why": "as line 1",
        }
    ]
    assert report["commands"] == [
        "tformer data clean a.en a.fr --only empty,invisible,markup,duplicate -o cleaned"
    ]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.en", "a.fr"]


def test_check_shows_a_table_that_no_line_can_spoil(noisy, tmp_path):
    result = run("check", "a.en", "a.fr", "--only", CHECKS, "--format", "text")
    lines = result.stdout.splitlines()
    assert lines[:2] == ["a.en, a.fr", "60 pairs; 56 raise no doubt"]
    assert "markup         1  1.67%      yes  tags, entities, other markup" in lines
    assert "line 12: source has <p>" in lines
    assert any("<U+0007>" in line for line in lines)
    assert "\x07" not in result.stdout
    assert lines[-2:] == [
        "How to fix it",
        "tformer data clean a.en a.fr --only empty,invisible,markup,duplicate -o cleaned",
    ]


class Page(HTMLParser):
    """The texts of a page, and its tags."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data.strip())


def test_a_page_shows_text_as_text_and_needs_nothing_else(noisy, tmp_path):
    write("b.tsv", ["<script>alert(1)</script>\t\u202e<img src=x>", "&amp;\t&lt;"])
    result = run("check", "b.tsv", "--examples", 9, "-o", "r.html")
    assert (result.exit_code, result.stdout) == (0, "")
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert {"script", "img", "link", "iframe"}.isdisjoint(page.tags)
    assert POLICY in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<script>alert(1)</script>" in page.texts
    assert "<U+202E><img src=x>" in page.texts
    assert "tformer data clean b.tsv -o cleaned" in page.texts
    assert "&amp;" in page.texts


def test_a_corpus_whose_sides_are_swapped_raises_one_doubt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("a.en", [FRENCH] * 10)
    write("a.fr", [ENGLISH] * 10)
    report = record_of("check", "a.en", "a.fr", "--format", "json")
    assert [doubt[:50] for doubt in report["doubts"]] == [
        'a.en, a.fr: the source looks like "fr" and the tar'
    ]


def test_clean_keeps_lines_in_order_and_says_why_each_other_was_dropped(noisy, tmp_path):
    result = run("clean", "a.en", "a.fr", "-o", "out", "--only", CHECKS)
    assert (result.exit_code, result.stdout) == (0, "out\n")
    kept = [n for n in range(N) if n not in (10, 11, 12, 13)]
    assert read(tmp_path / "out/a.en") == [noisy[n][0] for n in kept]
    assert read(tmp_path / "out/a.fr") == [noisy[n][1] for n in kept]
    dropped = [json.loads(line) for line in read(tmp_path / "out/dropped.jsonl")]
    assert [(pair["line"], pair["checks"]) for pair in dropped] == [
        (11, {"empty": "source blank"}),
        (12, {"markup": "source has <p>"}),
        (13, {"duplicate": "as line 1"}),
        (14, {"invisible": "target has the character U+0007"}),
    ]
    assert [(row["source"], row["target"]) for row in dropped] == [noisy[n] for n in range(10, 14)]
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert (report["pairs"], report["kept"], report["dropped"]) == (N, N - 4, 4)
    assert "kept 56 of 60 pairs" in result.stderr
    assert run("clean", "a.en", "a.fr", "-o", "out", "--only", CHECKS, "-q").stderr == ""


def test_what_was_cleaned_has_nothing_left_to_drop(noisy):
    run("clean", "a.en", "a.fr", "-o", "out")
    report = record_of("check", "out/a.en", "out/a.fr", "--format", "json")
    assert (report["dropped"], report["commands"]) == (0, [])


def test_tables_keep_all_their_columns_and_fields(noisy, tmp_path):
    write("a.tsv", [f"{n}\t{s}\t{t}\tmore" for n, (s, t) in enumerate(noisy)])
    fields = ["--source-field", 2, "--target-field", 3]
    run("clean", "a.tsv", *fields, "--only", CHECKS, "-o", "tsv")
    assert [line.split("\t")[0] for line in read(tmp_path / "tsv/a.tsv")] == [
        str(n) for n in range(N) if n not in (10, 11, 12, 13)
    ]
    lines = [json.dumps({"id": n, "t": {"en": s, "fr": t}}) for n, (s, t) in enumerate(noisy)]
    lines.insert(5, "")  # blank lines of JSONL are nothing
    with gzip.open("a.jsonl.gz", "wt") as file:
        file.writelines(line + "\n" for line in lines)
    output_of("dedupe", "a.jsonl.gz", "--source-field", "t.en", "--target-field", "t.fr", "-o", "d")
    assert read(tmp_path / "d/a.jsonl") == [row for n, row in enumerate(lines) if n not in (5, 13)]
    assert json.loads(read(tmp_path / "d/dropped.jsonl")[0])["line"] == 14


def test_pairs_that_differ_in_a_number_or_a_symbol_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = ["It costs $5.", "It costs €5.", "1.5 kg", "15 kg", "I write C.", "I write C++."]
    texts += ["It was -5 degrees.", "It was 5 degrees.", "it was: 5 degrees"]
    lines = [f"{text}\tVoici {text[3:]}" for text in texts]
    write("a.tsv", lines)
    for command in ("dedupe", "clean"):
        output_of(command, "a.tsv", "-o", command)
        assert read(tmp_path / command / "a.tsv") == lines[:-1]


@pytest.mark.parametrize(
    ("by", "kept"), [("pair", "acde"), ("source", "ade"), ("target", "acd"), ("either", "ad")]
)
def test_dedupe_keeps_the_first_by_what_is_asked_for(tmp_path, monkeypatch, by, kept):
    monkeypatch.chdir(tmp_path)
    rows = {"a": "x\ty", "b": "X!\tY.", "c": "x\tz", "d": "v\tw", "e": "u\tw"}
    write("a.tsv", rows.values())
    output_of("dedupe", "a.tsv", "-o", "out", "--by", by)
    assert read(tmp_path / "out/a.tsv") == [rows[name] for name in kept]


def test_near_duplicates_are_dropped_where_they_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    near = ENGLISH.replace("happy", "glad")
    write("a.tsv", [f"{ENGLISH}\t{FRENCH}", "other\tautre", f"{near}\t{FRENCH}"])
    output_of("dedupe", "a.tsv", "-o", "out")
    assert len(read(tmp_path / "out/a.tsv")) == 3
    output_of("dedupe", "a.tsv", "-o", "out", "--near")
    (dropped,) = map(json.loads, read(tmp_path / "out/dropped.jsonl"))
    assert dropped["line"] == 3
    assert re.fullmatch(r"[789]\d% like line 1", dropped["checks"]["near-duplicate"])
    report = record_of("check", "a.tsv", "--near", "--format", "json")
    found = {check["check"]: check["pairs"] for check in report["checks"]}
    assert (found["near-duplicate"], found["repeated-target"]) == (1, 1)


def test_held_out_sentences_of_either_side_are_dropped(noisy, tmp_path):
    write("test.en", [noisy[3][0].lower()])
    write("test.tsv", [f"none\t{noisy[5][1]}"])
    held_out = ["--held-out", "test.en", "--held-out", "test.tsv"]
    run("dedupe", "a.en", "a.fr", "-o", "out", *held_out)
    dropped = [json.loads(line) for line in read(tmp_path / "out/dropped.jsonl")]
    reasons = {pair["line"]: list(pair["checks"]) for pair in dropped}
    assert reasons == {4: ["held-out"], 6: ["held-out"], 13: ["duplicate"]}


def test_split_shares_no_sentence_and_loses_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = [pair for pair in make_pairs(300, seed=4) for _ in range(1)]
    pairs += [(s.upper(), f"{t} autre") for s, t in pairs[:150]]
    write("a.en", [s for s, _ in pairs])
    write("a.fr", [t for _, t in pairs])
    result = run("split", "a.en", "a.fr", "-o", "out", "--valid", 20, "--test", 30)
    assert result.exit_code == 0
    assert result.stderr.splitlines()[-1] == "400 train, 20 valid, 30 test pairs"
    parts = {
        name: list(
            zip(*(read(tmp_path / f"out/{name}.{end}") for end in ("en", "fr")), strict=True)
        )
        for name in ("train", "valid", "test")
    }
    assert sorted(pair for part in parts.values() for pair in part) == sorted(pairs)
    for name, part in parts.items():
        others = {s.lower() for other in parts if other != name for s, _ in parts[other]}
        assert others.isdisjoint(s.lower() for s, _ in part)
        assert [pair for pair in pairs if pair in part] == part  # in their order
    first = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    run("split", "a.en", "a.fr", "-o", "out", "--valid", 20, "--test", 30)
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == first
    run("split", "a.en", "a.fr", "-o", "out", "--valid", 20, "--test", 30, "--seed", 2)
    assert (tmp_path / "out/test.en").read_bytes() != first["test.en"]


def with_variants(n_pairs):
    """Pairs of made-up words, and after them each with another word at the end."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abdeilmnorstu", k=6)) for _ in range(500)]
    pairs = [tuple(" ".join(rng.choices(words, k=7)) for _ in range(2)) for _ in range(n_pairs)]
    return pairs + [(f"{source} today", f"{target} ici") for source, target in pairs]


def test_split_holds_out_copies_and_blanks_only_where_there_is_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = [(f"the house {n * n}", f"la maison {n * n}") for n in range(40)]
    poor = [(f"Name {n}", f"name {n}!") for n in range(100)] + [("one", "\u200b"), ("", "trois")]
    write("a.en", [source for source, _ in pairs + poor])
    write("a.fr", [target for _, target in pairs + poor])
    run("split", "a.en", "a.fr", "-o", "few", "--valid", 20, "--test", 20)
    few = [read(tmp_path / f"few/{name}.en") for name in ("valid", "test")]
    assert sorted(few[0] + few[1]) == sorted(source for source, _ in pairs)
    run("split", "a.en", "a.fr", "-o", "many", "--valid", 30, "--test", 20)
    assert len(read(tmp_path / "many/valid.en")) == 30


def test_split_keeps_what_is_nearly_the_same_together_where_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = with_variants(500)
    write("a.en", [source for source, _ in pairs])
    write("a.fr", [target for _, target in pairs])
    n_apart = {}
    for near in ([], ["--near"]):
        output_of("split", "a.en", "a.fr", "-o", "out", "--valid", 0, "--test", 200, *near)
        train, test = (read(tmp_path / f"out/{name}.en") for name in ("train", "test"))
        assert sorted(train + test) == sorted(read(tmp_path / "a.en"))
        n_apart[bool(near)] = len(
            {text.removesuffix(" today") for text in test}
            & {text.removesuffix(" today") for text in train}
        )
    assert n_apart == {False: n_apart[False], True: 0}
    assert n_apart[False] > 100
    options = ["--near", "--held-out", "out/test.en", "--held-out", "out/test.fr"]
    result = run("check", "out/train.en", "out/train.fr", *options, "--format", "json", "-q")
    found = {check["check"]: check["pairs"] for check in json.loads(result.stdout)["checks"]}
    assert found["held-out"] == 0


def test_texts_that_are_nearly_the_same_stay_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("a.txt", [source for source, _ in with_variants(200)])
    output_of("split", "a.txt", "-o", "out", "--valid", 0, "--test", 200, "--near")
    train, test = (read(tmp_path / f"out/{name}.txt") for name in ("train", "test"))
    assert {f"{text} today" for text in train}.isdisjoint(test)
    assert {f"{text} today" for text in test}.isdisjoint(train)
    refused = run("split", "a.txt", "-o", "new", "--valid", 0, "--test", 99, "--near")
    assert refused.exit_code == 2
    assert refused.stderr.endswith("; hold out fewer, or omit --near\n")


def test_what_is_nearly_the_same_as_held_out_is_found_where_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = with_variants(3)
    write("a.tsv", [f"{source}\t{target}" for source, target in [*pairs[3:], ("cat", "chat")]])
    write("test.txt", [pairs[0][1], "", "another sentence", pairs[2][0], pairs[2][0]])
    command = ["a.tsv", "--held-out", "test.txt", "-o", "out", "-q"]
    output_of("dedupe", *command)
    assert len(read(tmp_path / "out/a.tsv")) == 4
    for name in ("dedupe", "clean"):
        output_of(name, *command, "--near")
        dropped = map(json.loads, read(tmp_path / "out/dropped.jsonl"))
        reasons = {pair["line"]: pair["checks"]["held-out"] for pair in dropped}
        assert reasons.keys() == {1, 3}
        assert re.fullmatch(r"target is [89]\d% like a held-out sentence", reasons[1])
        assert re.fullmatch(r"source is [89]\d% like a held-out sentence", reasons[3])
    (tmp_path / "mine.toml").write_text(
        '[data]\ntrain = [{ tsv = "a.tsv" }]\nvalid = [{ tsv = "valid.tsv" }]\n'
        "[training]\nmax_steps = 1\n"
    )
    write("valid.tsv", [f"{pairs[1][0]}\tother"])
    result = run("check", "mine.toml", "--near", "--only", "held-out", "--format", "json", "-q")
    (found, _) = json.loads(result.stdout)["checks"]
    assert [example["line"] for example in found["examples"]] == [2]


def test_a_recipe_is_checked_as_a_whole(noisy, tmp_path):
    write("b.tsv", [f"{noisy[2][0]}\t{noisy[2][1]}", "The end.\tLa fin."])
    write("valid.tsv", [f"{noisy[20][0]}\tAutre chose"])
    (tmp_path / "mine.toml").write_text(
        '[data]\nsource_language = "en"\ntarget_language = "fr"\n'
        'train = [{ source = "a.en", target = "a.fr" }, { tsv = "b.tsv" }]\n'
        'valid = [{ tsv = "valid.tsv" }]\n[training]\nmax_steps = 1\n'
    )
    result = run("check", "mine.toml", "--format", "json", "--only", "held-out,duplicate")
    report = json.loads(result.stdout)
    found = {
        check["check"]: [(e["corpus"], e["line"], e["why"]) for e in check["examples"]]
        for check in report["checks"]
    }
    assert found["held-out"] == [("a.en, a.fr", 21, "a held-out file has the source or the target")]
    assert found["duplicate"] == [
        ("a.en, a.fr", 13, "as line 1 of corpus 1"),
        ("b.tsv", 1, "as line 3 of corpus 1"),
    ]
    assert report["commands"] == [
        "tformer data dedupe a.en a.fr --held-out valid.tsv -o cleaned-1",
        "tformer data dedupe b.tsv --held-out valid.tsv -o cleaned-2",
    ]
    report = record_of("check", "mine.toml", "--format", "json")
    assert report["commands"][1] == (
        "tformer data clean b.tsv --held-out valid.tsv --source-language en --target-language fr "
        "-o cleaned-2"
    )
    (tmp_path / "built-in.toml").write_text(
        '[data]\ntrain = [{ built_in = "train", pairs = 50 }]\n[training]\nmax_steps = 1\n'
    )
    built_in = run("check", "built-in.toml", "--format", "json", "--only", "markup")
    assert json.loads(built_in.stdout)["dropped"] == 0


def test_an_interrupted_clean_leaves_the_earlier_output(noisy, tmp_path, monkeypatch):
    run("clean", "a.en", "a.fr", "-o", "out")
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tformer_cli.plugins.corpora_tools.quality.clean_data.report_text", fail)
    assert run("clean", "a.en", "a.fr", "-o", "out", "--only", "empty").exit_code != 0
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} == {"a.en", "a.fr", "out", "out.part"}


NEAR = ["--near", "--scores", "scores", "--held-out", "held.en"]


@pytest.mark.parametrize("options", [[], NEAR], ids=["default", "all"])
def test_a_clean_that_was_killed_anywhere_resumes_to_the_same_bytes(
    noisy, tmp_path, monkeypatch, options
):
    monkeypatch.setattr("tformer_cli.plugins.corpora_tools.quality.clean_data.MARK_EVERY", 8)
    monkeypatch.setattr("tformer_cli.plugins.corpora_tools.quality.examine.CHUNK", 16)
    write("scores", [f"{-0.1 * (n % 7):.1f}" for n in range(N)])
    write("held.en", [noisy[40][0]])
    command = ["clean", "a.en", "a.fr", *options, "-o"]
    output_of(*command, "whole")
    whole = {file.name: file.read_bytes() for file in (tmp_path / "whole").iterdir()}
    assert len(whole["dropped.jsonl"].splitlines()) >= 4
    judged = []

    def counting(*arguments):
        for verdict in judge(*arguments):
            if len(judged) == stop_at:
                raise KeyboardInterrupt
            judged.append(verdict)
            yield verdict

    monkeypatch.setattr("tformer_cli.plugins.corpora_tools.quality.clean_data.judge", counting)
    for stops in ((5,), (8,), (13, 21), (30, 30, 59)):
        for stop_at in stops:
            judged.clear()
            assert run(*command, "out").exit_code != 0
            assert not (tmp_path / "out").exists()
        stop_at = -1
        judged.clear()
        done = run(*command, "out")
        assert done.exit_code == 0, done.stderr
        n_before = stops[-1] // 8 * 8
        assert (f"{n_before} pairs done; resuming" in done.stderr) == bool(n_before)
        assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == whole
        shutil.rmtree(tmp_path / "out")


def test_a_partial_clean_of_other_inputs_or_with_other_files_is_refused(
    noisy, tmp_path, monkeypatch
):
    monkeypatch.setattr("tformer_cli.plugins.corpora_tools.quality.clean_data.MARK_EVERY", 8)
    with monkeypatch.context() as context:
        context.setattr("tformer_cli.plugins.corpora_tools.quality.clean_data.report_text", 1 // 1)
        assert run("clean", "a.en", "a.fr", "-o", "out").exit_code != 0
    message = "out.part: was started with a different checks; remove it and"
    refused("clean", "a.en", "a.fr", "-o", "out", "--only", "empty", says=message)
    dropped = tmp_path / "out.part/dropped.jsonl"
    dropped.write_bytes(b"x" * dropped.stat().st_size)
    damaged = run("clean", "a.en", "a.fr", "-o", "out")
    assert damaged.exit_code == 2
    assert damaged.stderr.endswith("error: out.part: is damaged; remove it to start over\n")
    (tmp_path / "out.part/mine").touch()
    message = "out.part: holds another file, mine; move it away"
    refused("clean", "a.en", "a.fr", "-o", "out", says=message)
    write("a.fr", ["x"])
    refused("clean", "a.en", "a.fr", "-o", "new")
    assert not list(tmp_path.glob("new*"))


def test_names_that_two_files_share_become_those_of_their_sides(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for side in ("en", "fr"):
        (tmp_path / side).mkdir()
        write(f"{side}/train", [f"{side} {n}" for n in "abcdefghij"])
    output_of("clean", "en/train", "fr/train", "-o", "out", "-q")
    assert {"source.train", "target.train"} < {file.name for file in (tmp_path / "out").iterdir()}
    output_of("split", "en/train", "fr/train", "-o", "s", "--valid", 1, "--test", 1)
    assert {"train.source", "test.target"} < {file.name for file in (tmp_path / "s").iterdir()}


def test_lines_are_kept_byte_for_byte(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = ["a\u2028b", "c\x0cd", "e\u0301 \u00a0", "\U0001f600 ok", "\ttab"]
    write("a.x", odd)
    write("a.y", [f"{line}y" for line in odd])
    run("clean", "a.x", "a.y", "-o", "out", "--only", "empty")
    assert (tmp_path / "out/a.x").read_bytes() == (tmp_path / "a.x").read_bytes()


@pytest.mark.parametrize("command", ["clean", "split"])
def test_bytes_that_are_not_utf8_are_told(noisy, tmp_path, command):
    lines = (tmp_path / "a.en").read_bytes().split(b"\n")
    lines[20] += b"\xff"
    (tmp_path / "a.en").write_bytes(b"\n".join(lines))
    sizes = ["--valid", 5, "--test", 5] if command == "split" else []
    result = run(command, "a.en", "a.fr", "-o", "o", *sizes)
    assert result.exit_code == 0
    assert "1 line with bytes that are not UTF-8; U+FFFD was written" in result.stderr
    assert json.loads((tmp_path / "o" / "report.json").read_text())["not_utf8"] == 1


REVIEWS = [
    "The soup was cold.\tbad",
    "the soup was COLD\tbad",
    "The soup was cold!\tgood",
    "\tgood",
    "We waited <b>long</b>.\tbad",
    "La soupe est très bonne et le pain aussi.\tgood",
    "We will come again.\tgood",
]


def check_pairs(*args):
    report = record_of("check", *args, "--format", "json")
    found = {check["check"]: [e["line"] for e in check["examples"]] for check in report["checks"]}
    return report, {name: lines for name, lines in found.items() if lines}


REVIEW_FINDINGS = {
    "empty": [4],
    "markup": [5],
    "language": [6],
    "duplicate": [2],
    "other-label": [3],
    "held-out": [7],
}


def test_scores_of_models_and_a_detector_judge_pairs(noisy, tmp_path):
    pytest.importorskip("py3langid")
    write("scores", ["-0.5"] * 19 + ["-3.0"] + ["-0.5"] * (N - 20))
    foreign = "Watoto wanacheza mpira karibu na nyumba ya zamani, na mama yao anapika."
    lines = read(tmp_path / "a.fr")
    write("a.fr", [*lines[:30], foreign, *lines[31:]])
    options = ["--scores", "scores", "--worst-share", "0.02", "--detect-languages"]
    wanted = ["--only", "score,language"]
    _, found = check_pairs("a.en", "a.fr", *options, *wanted)
    assert found == {"score": [20], "language": [31]}
    assert "language" not in check_pairs("a.en", "a.fr", "--only", "language")[1]
    output_of("clean", "a.en", "a.fr", *options, *wanted, "-o", "c")
    assert len(read(tmp_path / "c/a.en")) == N - 2


def test_texts_with_labels_are_checked_cleaned_and_split(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("r.tsv", REVIEWS)
    write("held.tsv", ["we will come again\tbad", "Another.\tgood"])
    arguments = ["r.tsv", "--label-field", "2", "--source-language", "en", "--held-out", "held.tsv"]
    report, found = check_pairs(*arguments)
    assert found == REVIEW_FINDINGS
    assert (report["kind"], report["languages"], report["dropped"]) == ("labeled", ["en", ""], 5)
    assert report["checks"][1]["examples"][0] == {
        "corpus": "r.tsv", "line": 4, "text": "", "label": "good", "why": "text blank"
    }  # fmt: skip
    rest = "--label-field 2 --held-out held.tsv --source-language en"
    assert report["commands"] == [f"tformer data clean r.tsv {rest} -o cleaned"]
    output_of("clean", *arguments, "-o", "c")
    assert read(tmp_path / "c/r.tsv") == [REVIEWS[0], REVIEWS[2]]
    dropped = [json.loads(line) for line in read(tmp_path / "c/dropped.jsonl")]
    assert [(pair["line"], pair["label"], list(pair["checks"])) for pair in dropped][:2] == [
        (2, "bad", ["duplicate"]),
        (4, "good", ["empty"]),
    ]
    assert "7 examples; 2 raise no doubt" in run("check", *arguments, "--format", "text").stdout
    assert '<th scope="col">examples</th>' in run("check", *arguments, "--format", "html").stdout
    sizes = ["--valid", 1, "--test", 1]
    output_of("split", "r.tsv", "--label-field", "2", "-o", "s", *sizes)
    sets = [read(tmp_path / f"s/{name}.tsv") for name in ("train", "valid", "test")]
    assert sorted(chain(*sets)) == sorted(REVIEWS)
    assert sum("soup" in "".join(some) for some in sets) == 1  # whatever their labels are


def test_texts_alone_are_checked_cleaned_and_split(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [line.split("\t")[0] for line in REVIEWS]
    write("t.en", texts)
    write("held.txt", ["we will come again"])
    expected = {**REVIEW_FINDINGS, "duplicate": [2, 3]}
    del expected["other-label"]
    report, found = check_pairs("t.en", "--held-out", "held.txt")
    assert found == expected
    assert (report["kind"], report["languages"]) == ("texts", ["", "en"])
    write("t.jsonl", [json.dumps({"text": text, "n": n}) for n, text in enumerate(texts)])
    fields = ["t.jsonl", "--text-field", "text", "--source-language", "en"]
    report, found = check_pairs(*fields, "--held-out", "held.txt")
    assert found == expected
    rest = "--text-field text --held-out held.txt --source-language en -o cleaned"
    assert report["commands"] == [f"tformer data clean t.jsonl {rest}"]
    output_of("dedupe", "t.en", "-o", "d")
    assert read(tmp_path / "d/t.en") == [texts[n] for n in (0, 3, 4, 5, 6)]
    output_of("split", "t.en", "-o", "s", "--valid", 1, "--test", 1)
    sets = [read(tmp_path / f"s/{name}.en") for name in ("train", "valid", "test")]
    assert sorted(chain(*sets)) == sorted(texts)


@pytest.mark.parametrize(
    ("kind", "keys", "findings"),
    [
        ("classify", "", {**REVIEW_FINDINGS, "held-out": [7]}),
        ("language-model", 'text_field = "1", ', {**REVIEW_FINDINGS, "duplicate": [2, 3]}),
    ],
)
def test_recipes_of_other_tasks_have_other_checks(tmp_path, monkeypatch, kind, keys, findings):
    monkeypatch.chdir(tmp_path)
    write("t.tsv", REVIEWS)
    write("v.tsv", ["we will come again\tgood"])
    recipe = (
        f'[task]\nkind = "{kind}"\n[data]\nsource_language = "en"\n'
        f'train = [{{ {keys}tsv = "t.tsv" }}]\nvalid = [{{ {keys}tsv = "v.tsv" }}]\n'
        "[training]\nmax_epochs = 1\n"
    )
    (tmp_path / "r.toml").write_text(recipe)
    expected = {name: n for name, n in findings.items() if kind == "classify" or name[:2] != "ot"}
    assert check_pairs("r.toml")[1] == expected
    if kind == "language-model":
        (tmp_path / "r.toml").write_text(recipe.replace("[data]", '[data]\ntext = "stream"'))
        message = 'error: r.toml: data.text is "stream", a text whose lines are no ex'
        refused("check", "r.toml", says=message)


def test_columns_and_sides_are_called_what_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("good\tI like it.\nbad\t\n")
    result = run("check", "a.tsv", "--format", "json")
    assert result.stderr == (
        "a.tsv: column 1 is the source and column 2 the target; name others with "
        "--source-field and --target-field, or --text-field and --label-field for labeled texts\n"
        "language: not checked for the source and target; give --source-language and "
        "--target-language\n"
    )
    labeled = ["--label-field", "1", "--text-field", "2"]
    for options, meaning in (([], "a side"), (labeled, "a text or label")):
        done = run("check", "a.tsv", *options, "--format", "json", "--only", "empty", "-q")
        (check,) = json.loads(done.stdout)["checks"]
        assert (check["meaning"], check["pairs"]) == (f"{meaning} is blank", 1)
        assert done.stderr == ""
    write("plain.txt", ["a text", ""])
    for form in ("json", "html", "text"):
        shown = run("check", "plain.txt", "--format", form, "--only", "empty")
        assert "a text is blank" in shown.stdout


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
def test_what_is_kept_of_a_table_of_a_dataset_is_its_rows(noisy, tmp_path, ending):
    names = [f"a{number}" for number in range(N)]
    rows = {"id": names, "en": [pair[0] for pair in noisy], "fr": [pair[1] for pair in noisy]}
    write_table(tmp_path / f"t.{ending}", rows)
    fields = ["--source-field", "en", "--target-field", "fr"]
    report = record_of("check", f"t.{ending}", *fields, "--only", CHECKS)
    assert (report["pairs"], report["dropped"]) == (N, 4)
    rest = f"{' '.join(fields)} --only empty,invisible,markup,duplicate -o cleaned"
    assert report["commands"] == [f"tformer data clean t.{ending} {rest}"]
    output_of("clean", f"t.{ending}", *fields, "--only", CHECKS, "-o", "out")
    kept = [json.loads(line) for line in read(tmp_path / "out/t.jsonl")]
    assert kept == [dict(zip(rows, row, strict=True)) for row in whole_rows(rows)]
    dropped = [json.loads(line) for line in read(tmp_path / "out/dropped.jsonl")]
    assert [pair["line"] for pair in dropped] == [11, 12, 13, 14]
    # the rows are read as the lines of JSON that they become
    again = run("check", "out/t.jsonl", *fields, "--only", CHECKS)
    assert json.loads(again.stdout)["dropped"] == 0
    output_of("split", "out/t.jsonl", *fields, "--valid", 5, "--test", 5, "-o", "a")
    write_table(tmp_path / f"u.{ending}", {name: kept_column(kept, name) for name in rows})
    output_of("split", f"u.{ending}", *fields, "--valid", 5, "--test", 5, "-o", "b")
    for name in ("train.jsonl", "valid.jsonl", "test.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    held_out = ["--held-out", f"u.{ending}", "--only", "held-out"]
    assert record_of("check", f"u.{ending}", *fields, *held_out)["dropped"] == N - 4


def kept_column(rows, name):
    return [row[name] for row in rows]


def whole_rows(columns):
    """The rows that are not damaged."""
    return [
        row for n, row in enumerate(zip(*columns.values(), strict=True)) if n not in range(10, 14)
    ]


def write_table(path, columns):
    import datasets

    table = datasets.Dataset.from_dict(columns)
    if path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".csv":
        table.to_csv(path)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        with (
            pyarrow.OSFile(str(path), "wb") as file,
            pyarrow.ipc.new_stream(file, table.data.schema) as stream,
        ):
            stream.write_table(table.data.table)


def test_a_column_that_json_does_not_know_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = {"source": ["a b", "c d"], "target": ["e f", "g h"], "when": [b"1", b"2"]}
    write_table(tmp_path / "t.parquet", rows)
    output_of("check", "t.parquet")
    message = "t.parquet, row 1: cannot be written as JSON (bytes is not JSON"
    refused("clean", "t.parquet", "-o", "out", says=message)
    assert not (tmp_path / "out").exists()


def test_the_command_that_mends_drops_what_was_found(noisy, tmp_path):
    """Every option goes into it, and its result is what `check` foretold."""
    write("held.en", [noisy[20][0]])
    write("scores", ["-0.5"] * 19 + ["-3.0"] + ["-0.5"] * (N - 20))
    words = ["a.en", "a.fr", "--held-out", "held.en", "--near", "--scores", "scores"]
    words += ["--worst-share", "0.02", "--max-characters", "70", "--without", "invisible,numbers"]
    report = record_of("check", *words, "--target-language", "fr")
    (command,) = report["commands"]
    assert command == (
        "tformer data clean a.en a.fr --held-out held.en --near --scores scores --worst-share 0.02 "
        "--max-characters 70 --target-language fr --without invisible,numbers -o cleaned"
    )
    output_of(*command.split()[2:])
    cleaned = json.loads((tmp_path / "cleaned/report.json").read_text())
    assert (cleaned["pairs"], cleaned["dropped"]) == (N, report["dropped"])
    found = {check["check"]: check["pairs"] for check in report["checks"] if check["drops"]}
    assert cleaned["checks"] == found
    assert found["score"] == 1
    assert found["held-out"] > 0


def test_lines_that_are_no_pairs_are_dropped_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = make_pairs(N)
    lines = [json.dumps({"id": n, "source": a, "target": b}) for n, (a, b) in enumerate(pairs)]
    lines[4], lines[7] = '{"id": 4, "source": null, "target": "x"}', "{"
    write("t.jsonl", lines)
    cells = [f"{a}\t{b}\t{n}" for n, (a, b) in enumerate(pairs)]
    cells[4] = cells[7] = "one column"
    write("t.tsv", cells)
    rows = [json.loads(line) if len(line) > 1 else {"id": 7, "source": "x"} for line in lines]
    write_table(tmp_path / "t.parquet", {k: [row.get(k) for row in rows] for k in rows[0]})
    for name, why in {
        "t.jsonl": '"source" is null, not a string; correct the data',
        "t.tsv": "has 1 column, but column 2 is needed; columns are split at tabs",
        "t.parquet": '"source" is null, not a string; correct the data',
    }.items():
        report = record_of("check", name, "-q")
        assert report["checks"][0]["check"] == "malformed"
        assert [example["line"] for example in report["checks"][0]["examples"]] == [5, 8]
        assert report["checks"][0]["examples"][0]["why"] == why
        output_of("clean", name, "-o", f"o-{name}")
        kept = read(tmp_path / f"o-{name}" / name.replace("parquet", "jsonl"))
        assert len(kept) <= N - 2
        first = json.loads(read(tmp_path / f"o-{name}/dropped.jsonl")[0])
        assert (first["line"], first["checks"]) == (5, {"malformed": why})
        assert first["row"] == {"t.tsv": cells[4]}.get(name, lines[4])  # nothing of it is lost
        message = f"error: {name}, {'row' if 'parquet' in name else 'line'} 5: {why}"
        refused("clean", name, "--without", "malformed", "-o", "none", "-q", says=message)


def test_scores_of_other_pairs_or_of_one_direction_twice_are_refused(noisy, tmp_path):
    def score_lines(pairs):
        return [json.dumps({"source": a, "target": b, "token_log_probabilities": [-0.5, -1.5]})
                for a, b in pairs]  # fmt: skip

    write("to", score_lines(noisy))
    write("back", score_lines([pair[::-1] for pair in noisy]))
    write("other", score_lines(reversed(noisy)))
    write("bare", ["-1.0"] * N)
    check = ["check", "a.en", "a.fr", "--only", "empty"]
    assert run(*check, "--scores", "to", "--scores", "back").stderr == ""
    for files, message in {
        ("other",): "error: other, line 1: scores a different pair than the corpus has; score",
        ("to", "to"): "error: to, to: have scores of the same direction; name one, or score the",
        ("bare",): "warning: bare: has only numbers, read as mean log-probabilities per token; ",
    }.items():
        done = run(*check, *chain.from_iterable(("--scores", file) for file in files))
        assert done.stderr.startswith(message)


def test_sides_that_no_one_sees_are_blank(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unseen = ["\u200b", "\u00ad\u2060", "\u3164", "\u00a0\u200b", "\ufeff", " \t"]
    write("a.en", ["a dog", *unseen])
    write("a.fr", ["un chien"] * 7)
    report = record_of("check", "a.en", "a.fr", "--only", "empty")
    assert report["checks"][0]["pairs"] == len(unseen)


def test_what_another_command_wrote_is_not_replaced(noisy, tmp_path):
    output_of("split", "a.en", "a.fr", "--valid", 2, "--test", 2, "-o", "out")
    before = {file: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    for command in ("clean", "dedupe"):
        message = "error: --output: out holds other files; name a new directory"
        refused(command, "a.en", "a.fr", "-o", "out", says=message)
    assert {file: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before


def test_dates_and_numbers_without_a_value_are_written_as_json(tmp_path, monkeypatch):
    from datetime import date

    monkeypatch.chdir(tmp_path)
    rows = {"source": ["a b"], "target": ["e f"], "when": [date(2026, 1, 2)], "x": [float("nan")]}
    write_table(tmp_path / "t.parquet", rows)
    output_of("clean", "t.parquet", "--only", "empty", "-o", "out")
    assert read(tmp_path / "out/t.jsonl") == [
        '{"source": "a b", "target": "e f", "when": "2026-01-02", "x": null}'
    ]


def test_a_saved_dataset_is_checked(noisy, tmp_path):
    import datasets

    saved = datasets.Dataset.from_dict({"source": ["a b", ""], "target": ["e f", "g"]})
    saved.save_to_disk(tmp_path / "saved")
    assert record_of("check", "saved", "--only", "empty")["dropped"] == 1
    output_of("clean", "saved", "--only", "empty", "-o", "out")
    assert read(tmp_path / "out/saved.jsonl") == ['{"source": "a b", "target": "e f"}']
