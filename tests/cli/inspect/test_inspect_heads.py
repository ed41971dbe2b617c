import io
import json
import shutil
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from safetensors.numpy import load

from tests import commands
from tests.screens import draw_text
from tformer_cli.artifacts.shortlist_file import save_frequencies
from tformer_cli.heads import roles
from tformer_cli.heads.names import HeadId
from tformer_cli.heads.roles import role_grid, role_of
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.views.heads import head_map, record_blocks
from tformer_cli.show.terminal import room_of, show_blocks
from tformer_cli.text.tokenizer import read_tokenizer

LINES = ["A man sleeps.", "Two dogs run in the snow.", "A woman and a dog."]


(run,) = commands.under("inspect-heads", "run")


def test_in_a_pipe_there_is_an_object_a_line_blank_ones_included(model):
    result = run(model, stdin="A man sleeps.\n\n\u2028dogs\x00\n")
    assert result.exit_code == 0
    objects = [json.loads(line) for line in result.stdout.removesuffix("\n").split("\n")]
    assert [o["index"] for o in objects] == [0, 1, 2]
    assert [len(o["heads"]) for o in objects] == [8, 0, 8]
    assert result.stderr == "computing on cpu in float32\n"


def test_quiet_leaves_only_warnings(model):
    result = run(model, "--quiet", stdin=b"A man\n\xff\n")
    assert result.stderr.splitlines() == [
        "warning: 1 line with bytes that are not UTF-8; they were read as U+FFFD"
    ]


def test_rare_word_heads_are_judged_by_stored_or_counted_frequencies(model, tmp_path, monkeypatch):
    monkeypatch.setattr(roles, "FREQUENT", 10)
    known = shutil.copytree(model, tmp_path / "known")
    tokenizer = read_tokenizer(known / "tokenizer.json")
    counts = np.full(tokenizer.vocab_size, 9)
    ids = tokenizer.encode(LINES[1])
    counts[[ids[1], ids[4]]] = 1, 2
    save_frequencies(known, counts)
    unknown, found = (json.loads(run(path, LINES[1]).stdout) for path in (model, known))
    assert unknown["rare"]["positions"] == []
    assert found["rare"] == {"positions": [1, 4], "reason": None}
    for head in found["heads"]:
        assert ("rare_argmax" in head["metrics"]) == (head["kind"] == "enc")
    reason = "rare-word heads are not classified: "
    text = run(model, LINES[1], "--format", "text").stdout
    assert reason + "no frequencies.json in MODEL" in text
    assert reason not in run(known, LINES[1], "--format", "text").stdout
    assert reason + "fewer than 6 tokens" in run(known, "a dog", "--format", "text").stdout
    corpus = tmp_path / "corpus"
    corpus.write_text("\n".join(LINES * 2))
    summed = run(model, "--corpus", "--source", corpus)
    assert "rare_argmax" in json.loads(summed.stdout.splitlines()[0])["metrics"]
    typed = run(model, "--corpus", "--format", "text", stdin=corpus.read_text()).stdout
    assert reason in typed
    save_frequencies(known, counts[1:])
    assert run(known, LINES[1]).exit_code == 2


def test_stdin_is_read_for_a_dash(model):
    assert run(model, "-", stdin="A man\n").stdout == run(model, "A man").stdout


def test_the_translation_is_that_of_translate_byte_for_byte(model):
    text = "\n".join(LINES)
    translated = commands.output_of("translate", model, "--quiet", stdin=text)
    inspected = run(model, stdin=text).stdout
    targets = [json.loads(line)["target"]["text"] for line in inspected.splitlines()]
    assert "".join(f"{target}\n" for target in targets).encode() == translated.encode()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_capture_of_either_kind_leaves_the_translations_byte_identical(model, beam_size):
    search = ["--beam-size", str(beam_size), "--quiet"]
    text = "\n".join([*LINES, "", "dogs \U0001f600 run"])
    lines = commands.records_of("translate", model, "--format", "jsonl", *search, stdin=text)
    for mode in ("forced", "live"):
        inspected = run(model, "--mode", mode, *search, stdin=text)
        assert inspected.exit_code == 0
        targets = [json.loads(line)["target"] for line in inspected.stdout.splitlines()]
        assert [target["text"] for target in targets] == [line["translation"] for line in lines]
        scores = [target["score"] for target in targets]
        rounded = [float(f"{line['score']:.6g}") if line["source"] else None for line in lines]
        assert scores == rounded


def test_the_nth_best_translation_live_and_verified(model):
    arguments = [LINES[0], "--rank", "2", "--mode", "live", "--verify", "1e-5"]
    result = run(model, *arguments)
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    assert (record["mode"], record["target"]["rank"]) == ("live", 2)
    table = run(model, *arguments, "--format", "text").stdout
    assert "maps of the search exact" in table
    assert "translation 2" in table


def test_verify_measures_the_rows_of_the_search(model, monkeypatch):
    # the plain path of short sentences can agree to the last bit
    for limit in ("FUSED_FROM_KEYS", "FUSED_FROM_QUERIES"):
        monkeypatch.setattr(f"tformer_cli.model.attention.{limit}", 1)
    result = run(model, "A man", "--mode", "live", "--verify", "1e-30")
    assert result.exit_code == 1
    assert "error: line 1: residual " in result.stderr
    assert result.stdout == ""


def test_weights_are_given_where_asked_for(model):
    head = json.loads(run(model, "A man", "--heads", "cross.0.1", "--weights").stdout)["heads"]
    assert [h["id"] for h in head] == ["cross.0.1"]
    assert np.allclose(np.sum(head[0]["weights"], axis=1), 1, atol=1e-5)


def test_the_rules_of_roles_are_shown_without_a_model():
    result = run("--explain")
    assert result.exit_code == 0
    for word in ("previous", "aligner", "Voita", "Clark"):
        assert word in result.stdout


def test_every_head_has_a_role_that_its_metrics_give(model):
    for head in json.loads(run(model, "A man sleeps.").stdout)["heads"]:
        assert head["role"] == role_of(head["metrics"])


def test_a_corpus_is_a_line_for_each_head_or_a_table(model, tmp_path):
    text = "".join(f"{line}\n" for line in LINES)
    result = run(model, "--corpus", stdin=text)
    objects = [json.loads(line) for line in result.stdout.splitlines()]
    assert [o["id"] for o in objects][-1] == "cross.0.1"
    assert len(objects) == 8
    for head in objects:
        assert head["schema"] == "tformer.headstats/1"
        assert head["n_sentences"] == 3
        assert head["role"] == role_of(head["metrics"])
        assert head["metrics"].keys() == head["ci95"].keys()
    (tmp_path / "in").write_text(text)
    again = run(model, "--corpus", "-i", tmp_path / "in", "--quiet")
    assert again.stdout == result.stdout
    assert again.stderr == ""
    table = run(model, "--corpus", "--format", "text", stdin=text).stdout
    assert max(map(len, table.splitlines())) <= 80
    assert "cross.0.1" in table
    assert "3 sentences" in table


def test_metrics_of_the_sentence_or_the_means_of_a_corpus_select_heads(model):
    every = json.loads(run(model, LINES[0]).stdout)["heads"]
    best = max(every, key=lambda head: head["metrics"]["confidence"])["id"]
    found = json.loads(run(model, LINES[0], "--heads", "top:1@confidence").stdout)["heads"]
    assert [head["id"] for head in found] == [best]
    corpus = run(model, "--corpus", "--heads", "top:1@confidence", *LINES).stdout
    assert len(corpus.splitlines()) == 1
    nothing = run(model, LINES[0], "--heads", "@entropy>99", "--format", "text")
    assert "no head meets the conditions" in nothing.stdout
    assert json.loads(run(model, LINES[0], "--heads", "@entropy>99").stdout)["heads"] == []
    for form in ("html", "jsonl", "text"):
        assert run(model, "a", "--heads", "@entropy>99", "--format", form).exit_code == 0
    empty = run(model, "--corpus", "--heads", "@entropy>99", "a")
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert "no head meets" in empty.stderr


def test_a_target_can_be_given_as_text_or_file(model, tmp_path):
    (tmp_path / "s").write_text("A man\nTwo dogs\n")
    (tmp_path / "t").write_text("dog\nsnow\n")
    result = run(model, "--source", tmp_path / "s", "--target-file", tmp_path / "t")
    targets = [json.loads(line)["target"]["text"] for line in result.stdout.splitlines()]
    assert targets == ["dog", "snow"]
    assert json.loads(run(model, "A man", "--target", "dog").stdout)["target"]["is_forced"]


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "html", "svg", "jsonl", "text"])
def test_every_format_is_written_whole_and_the_same_every_time(model, tmp_path, suffix):
    files = [tmp_path / f"{n}.{suffix}" for n in (1, 2)]
    for file in files:
        assert run(model, LINES[0], "-o", file).exit_code == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [file.name for file in files]


def test_binary_formats_can_go_into_a_pipe(model):
    tensors = load(run(model, LINES[0], "--format", "safetensors").stdout_bytes)
    assert set(tensors) == {"enc.0", "enc.1", "dec.0", "cross.0"}
    npz = np.load(io.BytesIO(run(model, LINES[0], "--format", "npz").stdout_bytes))
    np.testing.assert_array_equal(npz["cross.0"], tensors["cross.0"])
    ET.fromstring(run(model, LINES[0], "--format", "svg").stdout_bytes)  # noqa: S314 - ours


def test_verify_fails_with_status_1_above_the_tolerance(model, monkeypatch):
    # the plain path of short sentences can agree to the last bit
    for limit in ("FUSED_FROM_KEYS", "FUSED_FROM_QUERIES"):
        monkeypatch.setattr(f"tformer_cli.model.attention.{limit}", 1)
    assert run(model, "A man", "--verify", "1e-4").exit_code == 0
    result = run(model, "A man", "--verify", "1e-30")
    assert result.exit_code == 1
    assert "error: line 1: residual " in result.stderr
    assert result.stdout == ""


def show_heads(record, width=80, color=None, heads=None, encoding="utf-8"):
    maps = heads or [record.first_head()]

    def draw(console):
        show_blocks(console, record_blocks(record, maps, room_of(console)))

    terminal = {"color_system": color, "force_terminal": color is not None}
    return draw_text(draw, width=width, encoding=encoding, **terminal)


@pytest.fixture(scope="module")
def record(model):
    return next(inspect_heads(model, ["A man 漢字 sleeps."], targets=["dogs run"]))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_terminal_view_fits_the_width_and_names_every_kind(record, width):
    from rich.cells import cell_len

    text = show_heads(record, width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    for name in ("encoder self-attention", "decoder masked self-attention", "cross-attention"):
        assert name in text
    assert "given target" in text
    assert ("more columns" in text) == (width == 40)


def test_rows_of_the_map_are_labeled_by_the_predicted_token(record):
    lines = show_heads(record, 200, heads=[HeadId("cross", 0, 1)]).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("cross.0.1"))
    labels = [line.split()[0] for line in lines[start + 2 : -1]]  # the last line is a note
    assert labels == list(record.target_pieces)
    assert lines[start + 1].split() == list(record.source_pieces)


def test_colors_carry_hundredths_and_plain_text_carries_blocks(record):
    colored = show_heads(record, 200, "truecolor", [HeadId("dec", 0, 0)])
    assert "\x1b[38;2;" in colored
    assert "100" in colored  # the first row sees one key only
    plain = show_heads(record, 200, None, [HeadId("dec", 0, 0)])
    assert "\x1b" not in plain
    assert "█" in plain


def test_the_grid_has_a_sign_for_each_head_and_a_legend_of_those_used(record):
    roles = {role_of(metrics) for metrics in record.metrics.values()}
    sinks = dict.fromkeys(record.heads, "sink")
    for encoding, is_ascii in (("utf-8", False), ("ascii", True)):
        text = draw_text(lambda c: show_blocks(c, role_grid(sinks, room_of(c))), encoding=encoding)
        grid, legend = text.split("roles: ")
        assert legend.startswith("v sink" if is_ascii else "▼ sink")
        assert grid.split().count("v" if is_ascii else "▼") == len(record.heads)
    legend = show_heads(record).split("roles: ")[1].splitlines()[0]
    assert all(role in legend for role in roles)


def test_without_unicode_the_blocks_are_ascii(model):
    ascii_record = next(inspect_heads(model, ["A man"], targets=["dogs"]))
    blocks = head_map(ascii_record, HeadId("dec", 0, 0))
    text = draw_text(lambda console: show_blocks(console, blocks), encoding="ascii")
    assert "#" in text
    assert not set("░▒▓█") & set(text)
