"""What commands refuse: a row of `refusals.txt` is a command line and what is said of it.

Each has status 2, writes nothing to stdout, ends with one line of error, the only one if it is
quiet, and leaves every file and folder as it was. A refusal that a new option needs is a new row.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from tests.plugins.instruments.jobs.test_timeline import lines
from tests.zoo import ENGLISH, FRENCH, RECIPES, STARS, recipe_of
from tformer_cli.cli.app import app

MODELS = {
    "M": "translate", "L": "language_model", "C": "classifier", "T": "tagger", "F": "masked",
    "S": "sentences", "I": "images", "Q": "int8",
}  # fmt: skip
"""Words of a row, and the models of the zoo that they stand for."""
TEXTS = {"LONG": "long " * 80, "GAPS": "<mask> soup " * 60, "NAME": "x" * 300, "BIG": "9" * 30}
HEAVY = "before anything heavy is imported"
"""The rows that are refused by reading the words alone, and are tried without some packages."""
FILES = {
    "file": ["a"], "full/thesis": ["years of work"], "my-recipe.toml": ["a"],
    "short": ["one"], "empty": [], "blank": [""], "blank2": ["", ""],
    "two": ["a", "b"], "three": ["A man sleeps.", "Two dogs", "the street"],
    "labels": STARS, "two-labels": STARS[:2], "wrong": [*STARS[:2], "wrong"],
    "ref": FRENCH, "s1": [*FRENCH[:7], "Il pleut."], "s2": FRENCH[::-1], "s3": ENGLISH,
    "source": ["A man sleeps.", "", "Two dogs run in the snow.", "the street"],
    "target": ["A woman.", "x", "the street and a dog", "snow"],
    "links": ["0-0 1-1", "", "0-3 0-4 4-0 5?1", "1-0"],
    "short-links": ["0-0"], "far-links": ["9-0", "", "", ""],
    "no-tab": ["a"], "forbid": ["a\tb", "", "c\td\tforbid"],
    "far": ["9 ||| a ||| x= 1 ||| -1"],
    "many.jsonl": ['{"index": 4, "translation": "a"}'],
    "foreign.jsonl": ['{"index": 0, "translation": "a", "token_ids": [9999999]}'],
    "no-list.jsonl": ['{"index": 0, "hypotheses": []}'],
    "no-text.jsonl": ['{"index": 0, "hypotheses": [7]}'],
    "bad.jsonl": ['{"source": "a"}', "{}"], "prefix.jsonl": ['{"source": "a", "target_prefix": 3}'],
    "m.toml": ["[x]", "reference = 'ref'", "systems = {a = 's1', c = 's3'}"],
    "minimal.toml": [
        '[data]\ntrain = [{ source = "a.en", target = "a.fr" }]',
        '[model]\npreset = "small"\nn_heads = 8\n[training]\nmax_steps = 10',
    ],
    "x.toml": ['[data]\ntrain = [{ tsv = "x.tsv" }]\n[training]\nmax_steps = 1'],
    "my file.en": ["a"], "page.html": ["<p>a</p>"], "x.csv.gz": [],
    "x.tsv": ["a\tb"], "x.csv": ["text,label", "I like it.,good"], "x.xls": [], "x.yaml": ["a: b"],
    "empty2": [], "blank3": ["", ""], "long": ["a", "b " * 300], "half": ["", "b " * 300],
    "blank.tsv": ["\tabc"], "one-label.tsv": ["a\tsame", "b\tsame"],
    "many-labels.tsv": [f"a\tlabel {number}" for number in range(1200)],
    "swapped.tsv": [f"up\ttext {number}" for number in range(40)],
    "three.csv": ["1,2,3,a", "1,2,3,b"], "four.csv": ["1,2,3,4,a", "5,6,7,8,b"],
    "300.csv": ["1,2,3,4,a", "5,6,7,300,b"], "word.csv": ["1,2,3,4,a", "5,6,7,x,b"],
    "flat.csv": ["7,7,7,7,a", "7,7,7,7,b"],
    "mine/heads.jsonl": [*lines()], "lora/adapter_config.json": ['{"r": 1, "lora_alpha": 1}'],
    "run/metrics.jsonl": ['{"kind": "report", "step": 1, "loss": 1.0, "learning_rate": 1e-3}'],
}  # fmt: skip


def rows():
    """Yields the section, the command line and what is said of each row."""
    section = ""
    for line in Path(__file__).with_name("refusals.txt").read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line and not line.startswith("#"):
            yield section, *line.split(" =>")


@pytest.fixture(scope="module")
def place(zoo, tmp_path_factory):
    """A folder with the inputs of the rows."""
    folder = tmp_path_factory.mktemp("refusals")
    (folder / "zoo").symlink_to(zoo.folder)
    (folder / "in").symlink_to(zoo.inputs)
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("".join(f"{line}\n" for line in content), "utf-8")
    for name in RECIPES:
        (folder / f"{name}.toml").write_text(recipe_of(name, "in"))
    teachers = '[distillation]\nteachers = ["zoo/translate"]\n'
    (folder / "distill.toml").write_text(recipe_of("translate", "in") + teachers)
    save_file({"a": np.zeros(1, np.float32)}, folder / "lora" / "adapter_model.safetensors")
    (folder / "binary").write_bytes(bytes(range(256)) * 4)
    (folder / "wide").write_bytes("A man\n".encode("utf-16"))
    (folder / "wasps" / "wasp").mkdir(parents=True)
    picture = zoo.inputs / "photos" / "ant" / "0.png"
    (folder / "wasps" / "wasp" / "w.png").write_bytes(picture.read_bytes())
    return folder


def words_of(line, zoo):
    """The words of a command line, and the file of its stdin."""
    words = [TEXTS.get(word, word.replace("\\n", "\n")) for word in shlex.split(line)]
    for name, model in MODELS.items():
        if name in words:
            assert zoo[model]
            words = [f"zoo/{model}" if word == name else word for word in words]
    if words[0] == "distill":
        assert zoo["translate"]
    return (words[:-2], words[-1]) if "<" in words else (words, None)


def state(*folders):
    paths = (
        f"{place}/{name}"  # a `Path` of each would take a quarter of the time of the tests
        for folder in folders
        for place, inner, files in os.walk(folder)
        for name in (*inner, *files)
    )
    return {path: os.lstat(path).st_mtime_ns for path in paths if "/cache" not in path}


@pytest.mark.parametrize(
    ("line", "says"),
    [pytest.param(*row, id=row[0]) for section, *row in rows() if section != HEAVY],
)
def test_a_command_refuses(place, zoo, monkeypatch, line, says):
    words, stdin = words_of(line, zoo)
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "200")
    before = state(place, zoo.folder)
    given = (place / stdin).read_bytes() if stdin else None
    done = CliRunner().invoke(app, words, input=given, prog_name="tformer")
    assert (done.exit_code, done.stdout) == (2, ""), (done.stderr, done.exception)
    *notes, error = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert says.strip() in error
    assert not any(note.startswith(("error: ", "Traceback")) for note in notes)
    assert not notes or "-q" not in words, notes
    assert state(place, zoo.folder) == before


PROGRAM = """
import json, sys
for name in ("ctranslate2", "onnx", "resvg_py", "typst", "uvicorn"):
    sys.modules[name] = None  # as if they were not installed
from typer.testing import CliRunner
from tformer_cli.cli.app import app
HEAVY = ("torch", "datasets", "transformers", "pyarrow")
said = []
for line in json.load(sys.stdin):
    result = CliRunner().invoke(app, line)
    loaded = [name for name in HEAVY if name in sys.modules]
    said.append([result.exit_code, result.stderr, loaded])
json.dump(said, sys.stdout)
"""


def test_wrong_words_import_nothing_heavy(place, zoo):
    """One process for all: what an earlier line imports is seen in all that follow."""
    early = {line: says.strip() for section, line, says in rows() if section == HEAVY}
    given = [words_of(line, zoo)[0] for line in early]
    before = state(place, zoo.folder)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(given), capture_output=True, text=True,
        check=True, cwd=place,
    )  # fmt: skip
    for line, (status, stderr, loaded) in zip(early, json.loads(ended.stdout), strict=True):
        assert early[line] in stderr, (line, stderr)
        assert (status, stderr.count("\n"), loaded) == (2, 1, []), (line, stderr)
    assert state(place, zoo.folder) == before
