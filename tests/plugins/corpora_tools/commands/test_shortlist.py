import shutil
from collections import Counter

import pytest

from tests.commands import output_of, refused, run
from tformer_cli.artifacts.config_file import SHORTLIST
from tformer_cli.artifacts.shortlist_file import read_shortlist
from tformer_cli.plugins.interchange.marian.layout import read_text_shortlist
from tformer_cli.text.tokenizer import EOS_ID, read_tokenizer

SOURCES = ["A man sleeps.", "", "Two dogs run in the snow.", "the street"]
TARGETS = ["A woman.", "x", "the street and a dog", "snow"]
LINKS = ["0-0 1-1", "", "0-3 0-4 4-0 5?1", "1-0"]


@pytest.fixture
def files(tmp_path):
    for name, lines in {"source": SOURCES, "target": TARGETS, "links": LINKS}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


@pytest.fixture
def own_model(model, tmp_path):
    return shutil.copytree(model, tmp_path / "model")


def options(files):
    return ["-i", files / "source", "--target-file", files / "target"]


def n_tokens(model):
    return read_tokenizer(model).vocab_size


def test_a_stored_shortlist_is_used_by_every_engine(own_model, files):
    done = run("shortlist", own_model, *options(files), "--save", "--best", 2, "--frequent", 3)
    assert done.exit_code == 0, done.stderr
    path = own_model / SHORTLIST
    assert done.stderr.splitlines()[:2] == [
        "computing on cpu in float32",
        "aligning by cross.0 (default)",
    ]
    assert done.stderr.splitlines()[2].startswith(f"{path}: ")
    assert "source tokens have targets, by 4 lines" in done.stderr
    plain = ["translate", own_model, "the street"]
    asked = [*plain, "--format", "jsonl", "-q"]
    unlisted = run(*asked, "--shortlist", "none").stdout
    for engine in ("compiled", "torch"):
        result = run(*asked, "--engine", engine)
        assert result.exit_code == 0, result.stderr
        assert result.stdout != unlisted
    tokenizer = read_tokenizer(own_model)
    listed = read_shortlist(path, n_tokens(own_model), n_tokens(own_model))
    candidates = listed.candidates([*tokenizer.source.encode("the street"), EOS_ID])
    words = {tokenizer.target.decode([token]) for token in candidates}
    text = run(*plain, "-q", "--engine", "compiled").stdout
    assert all(word in words for word in text.split())
    assert len(candidates) < n_tokens(own_model) // 4


def test_a_file_holds_the_same_as_the_model_directory_would(own_model, files):
    output_of("shortlist", own_model, *options(files), "-o", files / "lex", "-q")
    output_of("shortlist", own_model, *options(files), "--save", "-q")
    assert (files / "lex").read_bytes() == (own_model / SHORTLIST).read_bytes()
    streamed = run("shortlist", own_model, *options(files), "-o", "-", "-q")
    assert streamed.stdout_bytes == (files / "lex").read_bytes()


def test_without_targets_the_source_is_translated(model, files):
    output_of("translate", model, "-i", files / "source", "-o", files / "found", "-q")
    arguments = ["-i", files / "source", "--target-file", files / "found"]
    output_of("shortlist", model, *arguments, "-o", files / "a", "-q")
    output_of("shortlist", model, "-i", files / "source", "-o", files / "b", "-q")
    assert (files / "a").read_bytes() == (files / "b").read_bytes()


def test_given_links_are_counted_as_they_are(model, files):
    aligned = ["--alignments", files / "links", "-q", "--format", "text", "-o", "-"]
    result = run("shortlist", model, *options(files), *aligned)
    assert result.exit_code == 0, result.stderr
    side = read_tokenizer(model).source
    counts = Counter()
    for source, target, links in zip(SOURCES, TARGETS, LINKS, strict=True):
        for link in links.replace("?", "-").split():
            s, t = map(int, link.split("-"))
            words = f" {source.split()[s]}", f" {target.split()[t]}"
            pieces = [side.pieces(side.encode(word.strip())) for word in words]
            counts.update((piece, other) for piece in pieces[0] for other in pieces[1])
    totals = Counter()
    for (source, _), count in counts.items():
        totals[source] += count
    expected = {(s, t): f"{count / totals[s]:.7f}" for (s, t), count in counts.items()}
    rows = [line.split() for line in result.stdout.splitlines()]
    assert {(source, target): p for target, source, p in rows} == expected


def test_the_text_is_what_the_reader_of_marians_shortlists_reads(model, files):
    output_of("shortlist", model, *options(files), "-o", files / "a", "-q")
    as_text = ["--format", "text", "-o", files / "b.txt", "-q"]
    output_of("shortlist", model, *options(files), *as_text)
    side = read_tokenizer(model).source
    read = read_text_shortlist(files / "b.txt", side.id_of, side.id_of, side.vocab_size)
    ours = read_shortlist(files / "a", side.vocab_size, side.vocab_size)
    for token in range(EOS_ID + 1, side.vocab_size):
        theirs = set(read.targets[read.offsets[token] : read.offsets[token + 1]].tolist())
        own = set(ours.targets[ours.offsets[token] : ours.offsets[token + 1]].tolist())
        assert own == theirs | {token}


def test_a_shortlist_that_is_there_is_kept(own_model, files):
    output_of("shortlist", own_model, *options(files), "--save", "-q")
    message = f"--save: {own_model / SHORTLIST} is already there"
    refused("shortlist", own_model, *options(files), "--save", "-q", says=message)


def test_only_an_earlier_shortlist_is_replaced(model, files):
    for name, *others in (("a.safetensors",), ("a.txt", "--format", "text")):
        command = ("shortlist", model, *options(files), "-o", files / name, *others, "-q")
        output_of(*command)
        before = (files / name).read_bytes()
        (files / name).write_bytes(before[:-1])  # an interrupted copy of it
        output_of(*command)
        assert (files / name).read_bytes() == before
        for content in (b"Two words 0.5 and more\n", b""):
            (files / name).write_bytes(content)
            refused(*command, says=f"--output: {files / name} is already there; move it away first")
            assert (files / name).read_bytes() == content
