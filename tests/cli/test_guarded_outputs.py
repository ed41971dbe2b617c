"""No output destroys a file of a model of another tool, or one that tformer did not write."""

from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification

from tests.cli.test_command import OUTPUTS, arguments, commands, content, with_role
from tests.commands import output_of, run
from tests.foreign import encoders
from tests.foreign.hugging_face.test_importing import marian as hugging_face
from tests.foreign.spm import spm
from tests.foreign.t5.test_importing import random_t5
from tests.foreign.t5.test_importing import write as t5
from tests.foreign.test_bert import write_pipeline
from tests.foreign.test_gpt2 import nano_gpt, random_gpt2, write_tokenizer
from tests.foreign.test_llama import PIECES, random_llama, write_file
from tests.foreign.test_vit import SHAPE, as_timm, save_model, vit_for_timm
from tests.plugins.interchange.ctranslate2.test_importing import argos, write_model
from tests.plugins.interchange.marian.test_importing import OPTIONS, bergamot, weights
from tests.plugins.interchange.marian.test_importing import VARIANTS as MARIAN
from tests.plugins.interchange.marian.test_importing import write as marian
from tests.plugins.legacy.test_fairseq import fairseq_model
from tests.plugins.legacy.test_mingpt import write_run
from tests.plugins.legacy.test_opennmt import eole_model, opennmt_model
from tformer_cli.cli.command import FORCE
from tformer_cli.cli.options import PathRole, path_roles
from tformer_cli.errors import UsageError
from tformer_cli.files.regular_file import content_of
from tformer_cli.foreign import import_model
from tformer_cli.foreign.recognizing import recognize


def gpt2(path):
    path.mkdir()
    tokenizer = write_tokenizer(path)
    random_gpt2(tokenizer.get_vocab_size() + 2).save_pretrained(path)


def llama(path):
    random_llama(len(PIECES)).save_pretrained(path)
    (path / "tokenizer.model").write_bytes(spm(PIECES, algorithm=2))


def llama2_c(path):
    path.mkdir()
    write_file(path / "model.bin", random_llama(265), is_tied=False)


def mingpt(path):
    write_run(path)
    (path / "input.txt").write_text("".join(map(chr, range(48, 60))))


def pipeline(path):
    encoders.write_directory(path, "bert", "Model")
    write_pipeline(path)


def in_directory(write, name):
    def made_there(path):
        path.mkdir()
        write(path / name)

    return made_there


MODELS = {
    "hugging face": hugging_face,
    "t5": lambda path: t5(path, *random_t5()[1:]),
    "bert": lambda path: encoders.write_directory(path, "bert", "ForMaskedLM"),
    "roberta": lambda path: encoders.write_directory(path, "roberta", "ForMaskedLM"),
    "sentence-transformers": pipeline,
    "vit": lambda path: save_model(
        ViTForImageClassification, ViTConfig(**SHAPE, num_labels=2), path
    ),
    "timm": lambda path: as_timm(path, vit_for_timm(path.parent)),
    "gpt2": gpt2, "llama": llama, "llama2.c": llama2_c, "minGPT": mingpt,
    "nanoGPT": in_directory(nano_gpt, "ckpt.pt"), "fairseq": fairseq_model,
    "OpenNMT": opennmt_model, "Eole": eole_model, "CTranslate2": write_model,
    "Argos": in_directory(argos, "en_fr.argosmodel"),
    "Marian": lambda path: marian(path, weights(OPTIONS), OPTIONS),
    "Bergamot": lambda path: bergamot(
        path, weights(OPTIONS | MARIAN["ssru"]), OPTIONS | MARIAN["ssru"]
    ),
}  # fmt: skip
AS_FILES = {
    "llama2.c": "model.bin",
    "nanoGPT": "ckpt.pt",
    "Argos": "en_fr.argosmodel",
    "OpenNMT": "model_step_5.pt",
    "Marian": "model.npz",
}
"""Models of one file that is named, with others beside it."""
WRITERS = [
    (words, source, output)
    for words, command in commands().items()
    for source in with_role(command, is_output=False)
    for output in with_role(command, is_output=True)
    if source[1] in (PathRole.reads_model, PathRole.reads_tokenizer)
    and output[1] is PathRole.writes_file
]


def refusal(words, *named, force=False):
    command = commands()[words]
    options = [f"--{FORCE}"] if force else []
    with pytest.raises(UsageError) as refused:
        command.invoke(command.make_context("tformer", options + arguments(command, *named)))
    return str(refused.value)


def pair_up(commands, files):
    """Pairs each command with a file and each file with a command.

    All pairs would say no more, as what guards knows no command, and take ten times as long.
    """
    return islice(zip(cycle(commands), cycle(sorted(files))), max(len(commands), len(files)))


@pytest.mark.parametrize("kind", MODELS)
def test_no_file_of_another_tools_model_is_replaced(kind, tmp_path, monkeypatch):
    """By any command that takes the model, insisting does not help."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    model = tmp_path / "m"
    MODELS[kind](model)
    (model / "README.md").write_text("# A model\n")
    named = [model, model / AS_FILES[kind]] if kind in AS_FILES else [model]
    named = [path for path in named if recognize(path, Path) is not None]
    read = {Path(file) for path in named for file in recognize(path, Path)(None).files}
    before = content(tmp_path)
    inside = {file for file in before if file.is_relative_to(model)}
    assert len(WRITERS) > 15
    assert named
    assert read & inside
    for path in named:
        for writer, file in pair_up(WRITERS, inside if path.is_dir() else read & inside):
            words, given, output = writer
            for force in (False, True):
                message = refusal(words, (given[0], path), (output[0], file), force=force)
                told = "the input (" in message or (path.is_file() and "and holds" in message)
                assert told, (words, file, message)
        link = tmp_path / f"link to {path.name}"
        link.symlink_to(max(inside if path.is_dir() else read & inside))
        message = refusal(words, (given[0], path), (output[0], link.name), force=True)
        assert "the input (" in message, (words, message)
    assert {path: data for path, data in content(tmp_path).items() if path in before} == before


@pytest.mark.parametrize("kind", MODELS)
def test_no_file_of_a_model_that_is_not_named_is_replaced(kind, tmp_path, monkeypatch):
    """Text over its texts, JSON over its JSON: only if the user insists."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("A man.\n")
    (tmp_path / "other").mkdir()
    place = tmp_path / "m"
    MODELS[kind](place)
    (place / "README.md").write_text("# A model\n")
    (tmp_path / "link").symlink_to(max(file for file in place.rglob("*") if file.is_file()))
    inside = [file for file in content(place) if recognize(place, Path) or file.name != "README.md"]
    before = content(tmp_path)
    writers = [writer.values for writer in OUTPUTS if writer.values[1][1] is PathRole.writes_file]
    for (words, output), file in pair_up(writers, [*inside, tmp_path / "link"]):
        message = refusal(words, (output[0], file))
        assert "add --force to replace it" in message or "belongs to the model" in message, message
    assert content(tmp_path) == before


def test_no_file_in_the_cache_of_the_hub_is_replaced(tmp_path, monkeypatch):
    """A name of the hub is read from there, through links to files that are named by hashes."""
    monkeypatch.chdir(tmp_path)
    snapshot, blobs = tmp_path / "snapshots" / "1", tmp_path / "blobs"
    blobs.mkdir()
    snapshot.parent.mkdir()
    MODELS["hugging face"](snapshot)
    for number, file in enumerate(sorted(snapshot.iterdir())):
        file.rename(blobs / str(number))
        file.symlink_to(blobs / str(number))
    monkeypatch.setattr(import_model, "_find_download", lambda name: snapshot)
    monkeypatch.setattr(import_model, "_local", lambda name, say=None: snapshot)
    before = content(tmp_path)
    words, model, output = next(writer for writer in WRITERS if writer[0] == ("translate",))
    for file in (*snapshot.iterdir(), *blobs.iterdir()):
        message = refusal(words, (model[0], "owner/name"), (output[0], file), force=True)
        assert "the input (MODEL)" in message or "belongs to the model" in message, (file, message)
    assert content(tmp_path) == before


def test_devices_are_read_and_written(model, tmp_path):
    output_of("translate", model, "-i", "/dev/null", "-o", "/dev/null")


def test_results_beside_weights_that_are_no_model_are_replaced(model, tmp_path):
    """Files of numpy that an inspection wrote, and checkpoints of who knows whom."""
    (tmp_path / "out").write_text("an earlier translation\n")
    for name in ("heads.npz", "others.npz", "a.pt", "data.bin"):
        (tmp_path / name).write_bytes(b"PK\3\4")
    output_of("translate", model, "a", "-o", f"{tmp_path}/out")


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = ViTConfig(**SHAPE, intermediate_size=40, id2label={0: "x", 1: "y"})
    save_model(ViTForImageClassification, config, tmp_path / "vit")
    rng = np.random.default_rng(3)
    for name in ("a.png", "imgs/x/1.png", "imgs/y/2.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (12, 12, 3), np.uint8)).save(tmp_path / name)
    (tmp_path / "list").write_text("a.png\n")
    (tmp_path / "late").write_text("imgs/x/1.png\na.png\n")
    (tmp_path / "link.png").symlink_to("a.png")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("classify vit a.png -o a.png", "a.png is also the input (TEXT); name another file"),
        ("classify vit a.png -o link.png", "link.png is also the input (TEXT)"),
        ("classify vit a.png --force -o a.png", "a.png is also the input (TEXT)"),
        ("classify vit -i list -o a.png", "a.png already exists and holds PNG, which this"),
        ("classify vit -i list --force -o link.png", "link.png is also read; name another file"),
        ("classify vit -i late --force -o a.png", "a.png is also read; name another file"),
        ("classify vit --images imgs -o imgs/x/1.png", "holds PNG"),
        ("classify vit --images imgs --force -o imgs/x/1.png", "imgs/x/1.png is also read"),
        ("evaluate vit --images imgs --force -o imgs/x/1.png", "imgs/x/1.png is also read"),
        ("score vit --images imgs --force -o imgs/x/1.png", "imgs/x/1.png is also read"),
        ("embed vit --images imgs -o imgs/x/1.png", "holds PNG, which this command"),
        ("inspect-image vit a.png -o a.png", "a.png is also the input (TEXT)"),
        ("inspect-image vit --format png -i list -o a.png", "holds PNG, which this command did"),
        ("inspect-image vit --format png -i list --force -o a.png", "a.png is also read"),
        ("inspect-heads vit a.png --format png -o a.png", "a.png is also the input (TEXT)"),
    ],
)
def test_a_picture_that_is_read_is_not_replaced(pictures, words, message):
    before = content(pictures)
    done = run(*words.split())
    assert done.exit_code == 2, done.stderr
    # a note of the import and the device come first: only then is the list of pictures read
    assert message in done.stderr.splitlines()[-1]
    assert content(pictures) == before


@pytest.mark.parametrize(
    ("words", "content"),
    [
        ("tokenize train in.txt -o FILE", b"the 12\nof 9\n"),  # fairseq's dict.en.txt
        ("tokenize train in.txt -o FILE", b'{"the": 0, "of": 1}'),  # GPT-2's vocab.json
        ("data check in.txt -o FILE", b'{\n  "model_type": "bert"\n}'),
        ("data check in.txt -o FILE", b"<!DOCTYPE html><p>A page of mine</p>"),
        ("translate M a -o FILE", b"\x80\x04\x95 a pickle"),
        ("translate M a -o FILE", b"PK\3\4 a checkpoint"),
        ("translate M a --format jsonl -o FILE", b'{"text": "mine"}\n{"text": "too"}\n'),
        ("translate M a -o FILE", "Latin-1: caf\xe9\n".encode("latin-1")),
        ("plot M -o FILE", b"\x89PNG\r\n\x1a\n a photograph"),
        ("embed M -i in.txt --format safetensors -o FILE", b'\x40\0\0\0\0\0\0\0{"w":{"dtype":'),
        ("translate M a -o FILE", b'\xef\xbb\xbf# mine\n[task]\nkind = "tag"\n'),
        ("translate M a -o FILE", b"#!/bin/sh\necho mine\n"),
        ("translate M a -o FILE.toml", b"[task\nnot finished\n"),
        ("translate M a -o FILE.py", b"print()\n"),
        ("inspect-heads M a -o FILE.html", b"my diary\n"),
        ("plot M -o FILE.svg", b"my diary\n"),
    ],
)
def test_a_file_that_a_command_cannot_have_written_is_kept(
    classifier, model, tmp_path, monkeypatch, words, content
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("A man.\n")
    line = [str(model) if word == "M" else word.replace("FILE", "file") for word in words.split()]
    place = tmp_path / next(word for word in line if word.startswith("file"))
    place.write_bytes(content)
    result = run(*line)
    assert result.exit_code == 2
    assert f"{place.name} already exists and holds " in result.stderr
    assert result.stderr.endswith("; name another file, or add --force to replace it\n")
    assert place.read_bytes() == content
    if line[0] == "tokenize":
        output_of(*line, "--force", "-q")
        assert content_of(place) == ("tokenizer", True)


FORMATS = {
    "tokenize train in.txt --algorithm char": [""],
    "data check in.txt": ["text", "json", "html"],
    "translate M a": ["text", "tsv", "jsonl"],
    "evaluate --hypothesis in.txt --reference in.txt": [],
    "compare in.txt b=in.txt --reference in.txt": [
        "text",
        "json",
        "csv",
        "markdown",
        "latex",
        "html",
    ],
    "inspect-heads M a": ["text", "jsonl", "safetensors", "npz", "html", "svg"],
    "inspect-heads M a --heads enc": ["svg", "png", "pdf"],
    "inspect-step M a --token 1 --head enc.0.0": ["text", "json", "html"],
    "inspect-positions M": ["text", "json", "npz", "svg", "html"],
    "inspect-logits M a": ["jsonl", "html"],
    "inspect-flow M a": ["jsonl", "html"],
    "inspect-report M a --no-ablation": [""],
    "guide translating": [""],
    "guide sample-report": [""],
    "generate L a": ["text", "jsonl"],
    "embed C -i in.txt": ["tsv", "jsonl", "npy", "safetensors"],
    "classify C a": ["text", "tsv", "jsonl"],
}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, marks=[pytest.mark.needs("png"), pytest.mark.needs("pdf")])
        if "png" in formats
        else words
        for words, formats in FORMATS.items()
    ],
)
def test_earlier_results_are_replaced(
    model, language_model, classifier, tmp_path, monkeypatch, words
):
    """In each format, by each other one of the same command."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("A man is here.\nTwo men.\n")
    models = {"M": model, "L": language_model, "C": classifier}
    line = [str(models.get(word, word)) for word in words.split()]
    for name in FORMATS[words]:
        chosen = [*line, "-o", "result", *(["--format", name] if name else []), "-q"]
        for _ in range(2):
            output_of(*chosen)


def test_an_empty_file_and_a_text_of_mine_are_replaced(model, tmp_path):
    for old in ("", "an earlier translation\n", "a\0b\n{no object}\n", "[Music]\na = b\n"):
        (tmp_path / "out").write_text(old)
        output_of("translate", model, "a", "-o", f"{tmp_path}/out")


def test_every_command_with_an_output_is_guarded():
    """A new one that forgets its role fails here."""
    for words, command in commands().items():
        roles = path_roles(command.callback)
        outputs = [
            parameter
            for parameter in command.params
            if "--output" in parameter.opts or "-o" in parameter.opts
        ]
        names = [name for parameter in command.params for name in parameter.opts]
        for output in outputs:
            role = roles.get(output.name)
            assert role in {pair.values[1][1] for pair in OUTPUTS}, words
            if words != ("export",):  # its --force takes a page of any size, and replaces nothing
                assert (f"--{FORCE}" in names) == (role is PathRole.writes_file), words
