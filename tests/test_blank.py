"""Blank lines: a line without a visible character is blank, for every command."""

import pytest
import regex

from tests.commands import lines_of, record_of, refused
from tests.test_contract import every_command
from tformer_cli.documents.segments import SegmentBuilder
from tformer_cli.text.config import CorpusConfig, DataConfig
from tformer_cli.text.loading.encoded import encode_corpus
from tformer_cli.text.tokenizer import read_tokenizer
from tformer_cli.wording import is_blank

UNSEEN = (
    "\u00a0", "\u3000 \u2009", "\u200b", "\u00ad\u00ad", "\ufeff", "\u200d\ufe0f", "\u2028",
    "\x00\x1b", "\u3164", "\u115f\u1160", "\u2800 \u2800", "\U000e0020\U000e007f", "\u034f",
    "\u180e", "\u2066\u2069",
)  # fmt: skip


def test_what_is_not_seen_follows_from_unicode_s_properties():
    unseen = regex.compile(
        r"[\p{White_Space}\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}"
        r"--\p{Prepended_Concatenation_Mark}]|[\u2800\U00016fe4\U0001d159]",
        regex.V1,
    )
    characters = [chr(number) for number in range(0x110000)]
    assert [c for c in characters if is_blank(c) != bool(unseen.fullmatch(c))] == []


@pytest.mark.parametrize("text", ["a", "\u00a0.", "\u0301", "\ufffd", "\u0600", "\u200bक"])
def test_a_text_with_a_visible_character_is_not_blank(text):
    assert not is_blank(text)


@every_command
def test_every_command_reads_an_unseen_line_as_an_empty_one(command, zoo, tmp_path):
    outputs = []
    for blank in (UNSEEN, [""] * len(UNSEEN)):
        files = {"lines": ["A man sleeps.", *blank, "the street"]}
        if command.second:
            is_label = command.model == "classifier"
            others = [""] * len(blank) if is_label else blank
            files["second"] = ["good" if is_label else "la rue", *others, "fair"]
        for name, lines in files.items():
            (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        words = ["--target-file", tmp_path / "second"] if command.second else []
        words += ["--format", command.plain]
        outputs.append(lines_of(command.verb, zoo[command.model], "-i", tmp_path / "lines", *words))
    if command.verb in ("fill", "embed", "generate"):  # which write each line again
        outputs = [[line.partition("\t")[2] or line for line in lines] for lines in outputs]
        outputs = [[line for line in lines if not is_blank(line)] for lines in outputs]
    assert outputs[0] == outputs[1]


def test_pairs_that_are_blank_change_no_loss(zoo, tmp_path):
    pairs = [("A man sleeps.", "Un homme dort."), ("the street", "la rue")]
    losses = []
    for added in ((), UNSEEN):
        both = [*pairs[:1], *((text, text) for text in added), *pairs[1:]]
        for side, name in enumerate(("source", "target")):
            (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in both))
        words = ("-i", tmp_path / "source", "--reference", tmp_path / "target", "--format", "json")
        record = record_of("evaluate", zoo["translate"], *words)
        losses.append((record["loss"], record["perplexity"]))
    assert losses[0] == pytest.approx(losses[1])


def test_training_skips_pairs_with_an_unseen_side(tmp_path, zoo):
    texts = [*UNSEEN, "A man sleeps.", *["the street"] * len(UNSEEN)]
    (tmp_path / "a").write_text("".join(f"{text}\n" for text in texts))
    (tmp_path / "b").write_text("".join(f"{text}\n" for text in reversed(texts)))
    corpus = CorpusConfig(source=str(tmp_path / "a"), target=str(tmp_path / "b"))
    data = DataConfig(train=(corpus,), cache_directory=str(tmp_path / "cache"))
    encoded = encode_corpus(corpus, data, read_tokenizer(zoo["translate"]))
    assert (len(encoded), encoded.dropped["blank"]) == (1, 2 * len(UNSEEN))


def test_data_check_counts_unseen_sides(tmp_path):
    (tmp_path / "a").write_text("".join(f"{text}\n" for text in UNSEEN))
    (tmp_path / "b").write_text("A man sleeps.\n" * len(UNSEEN))
    record = record_of("data", "check", tmp_path / "a", tmp_path / "b", "--format", "json")
    (blank,) = (check for check in record["checks"] if check["check"] == "empty")
    assert blank["pairs"] == len(UNSEEN)


@pytest.mark.parametrize("options", [["--dry-run"], []])
def test_validation_examples_that_are_all_blank_are_refused(tmp_path, options):
    (tmp_path / "train").write_text("A man sleeps.\tUn homme dort.\n" * 30)
    (tmp_path / "valid").write_text("".join(f"{text}\tla rue\n" for text in UNSEEN))
    (tmp_path / "recipe.toml").write_text(
        f"""[data]
train = [{{ tsv = "{tmp_path}/train" }}]
valid = [{{ tsv = "{tmp_path}/valid" }}]
[tokenizer]
algorithm = "byte"
[training]
max_steps = 1
"""
    )
    words = ["train", tmp_path / "recipe.toml", "-o", tmp_path / "run", "-q", *options]
    refused(*words, says="data.valid: every example is blank")


@pytest.mark.parametrize("text", UNSEEN)
def test_a_segment_of_a_document_without_visible_text_is_not_translated(text):
    builder = SegmentBuilder("here")
    builder.text(text)
    assert builder.is_blank
