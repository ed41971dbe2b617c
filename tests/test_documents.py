"""Every example, option, key, file and link in the documents is tried.

The documents are README.md, recipes/README.md, the guides (tformer_cli/guide/*.md),
tests/README.md and tests/benchmarks/README.md. How their code blocks are read:

```console   `$ command` lines, each followed by what the screen shows; a trailing `\\` continues
```sh        commands, one a line; a trailing `\\` continues
```python    a program; it must print something
```toml      a part of a recipe; it must fit one
```json      JSON, one or several values
```yaml ```make ```ini ```dockerfile   files of other programs; test_ci_examples.py runs them

All are run in order, document by document, in a directory of its own that holds what `DESK` lists;
README.md, the first page that one reads, in one that only has runs/quickstart. Every command must
exit with 0 (or with 141 before `head`). What a console block shows must be what it prints to a
screen of 80 columns; a line `…` stands for any lines. A comment before the block, `<!-- NAME -->`
or `<!-- NAME: text -->`, changes that:

quickstart       run, but the output shown is that of the model of `tformer quickstart`. It is
                 compared by `pytest -m slow tests/test_documents.py` with
                 TFORMER_QUICKSTART_RUN=RUN, and written with TFORMER_WRITE_DOCUMENTS=1 besides.
exits: N         every command exits with status N.
varies           run; the output shown differs from time to time (speeds, addresses).
files: NAMES     run, with these files of `DESK`, which are the reader's own.
measured: WHERE  not run: takes long; the text names the machine, in words for the reader.
needs: WHAT      not run: needs data, packages, processes or time that a test does not have.

Blocks that are not run have their commands and options checked like all others. Plain blocks
without a language are pictures and are not read. Several comments may stand before a block.

TFORMER_WRITE_DOCUMENTS=1 also writes the table of the recipe keys.
"""

import ast
import json
import os
import re
import shlex
import shutil
import tomllib
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.example_shell import ExampleShell
from tformer_cli.cli.app import app
from tformer_cli.cli.command import CITE
from tformer_cli.guide.recipe_schema import sentences_of
from tformer_cli.model.adapter_config import AdapterConfig
from tformer_cli.model.config import ModelConfig
from tformer_cli.recipe import START_KEYS, load_recipe, recipe_names, recipes_directory
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.config import CorpusConfig, DataConfig, TokenizerConfig
from tformer_cli.trainer.config import (
    StartConfig,
    TaskConfig,
    TrainingConfig,
    ValidationConfig,
)
from tformer_cli.trainer.distillation import DistillationConfig

ROOT = Path(__file__).parent.parent
README, RECIPES, GUIDE = ROOT / "README.md", ROOT / "recipes/README.md", ROOT / "tformer_cli/guide"
GUIDES = sorted(GUIDE.glob("*.md"))
PAGES = [README, RECIPES, *GUIDES]
DOCUMENTS = [*PAGES, ROOT / "tests/README.md", ROOT / "tests/benchmarks/README.md"]
KEY_TABLES = {
    "[task]": TaskConfig,
    "[data]": DataConfig,
    "a corpus of `data.train` or `data.valid`": CorpusConfig,
    "[tokenizer]": TokenizerConfig,
    "[model]": ModelConfig,
    "[model], for fine-tuning": StartConfig,
    "[adapter], for fine-tuning": AdapterConfig,
    "[training]": TrainingConfig,
    "[validation]": ValidationConfig,
    "[decoding]": DecodingConfig,
    "[distillation], for `tformer distill`": DistillationConfig,
}
BEGIN = "<!-- recipe keys: from the code, by tests/test_documents.py -->"
END = "<!-- end -->"
REAL_RUN = os.environ.get("TFORMER_QUICKSTART_RUN", "")
WRITES = bool(os.environ.get("TFORMER_WRITE_DOCUMENTS"))
NOT_RUN = {"measured", "needs"}
LANGUAGES = {
    *("console", "sh", "python", "toml", "json", ""),
    *("yaml", "make", "ini", "dockerfile"),
}
MARKS = {"quickstart", "exits", "varies", "files", *NOT_RUN}
BENCHMARK_OPTIONS = {
    option
    for script in (ROOT / "tests/benchmarks").glob("*.py")
    for option in re.findall(r'"(--[\w-]+)"', script.read_text(encoding="utf-8"))
}
BANNED = (
    r"\bno number\b", r"\bgo(es)? on with\b", r"\bso many\b", r"\bcomes? to\b",
    r"\bwho searches\b", r"\blearn(ed|t|s)? by heart\b", r"\b(leaves|left) out\b",
    r"\ba line for a line\b", r"\bas good as equal\b", r"\bnobody speaks\b",
    r"\bis of\b", r"\band so are\b", r"\bbeside\b", r"\bis (said once|told of)\b",
    r"\bwhat is (said|told)\b", r"\bgives what\b", r"\btakes? no notice\b", r"\bends nothing\b",
    r"\balone;", r"\b(of|has|have) ([\w-]+ )?[\w-]+s alone\b",
    r"\b(command|file|function|head|layer|line|model|program|row|text|token)s?,? who\b",
    r'"""(What|Whether|Of|Makes of)\b',
)  # fmt: skip
"""What stands in no document, help, message, docstring or comment: the field has words for it.

The last pattern is about how docstrings begin: with a verb or a noun.
"""
SCREEN = {"COLUMNS": "80", "NO_COLOR": "1"}
DESK = """\
runs/quickstart           a run of four steps with heads.jsonl and checkpoints 2 and 4; copies of
                          it: runs/mine, runs/other, runs/early, runs/en-fr, runs/fr-en
corpus/                   what `tformer make-corpus corpus` writes, with 400 pairs to train on
in.txt in.fr a.en a.fr    three sentences and their translations
new.en test.en test.de    three sentences of a task of one's own
train.en train.de valid.en valid.de pairs.tsv pairs.jsonl
my-recipe.toml            the template, for a tiny model and two steps
terms.tsv articles.jsonl crawl.jsonl log.en news.en.gz reviews.csv
"""
"""Files of the directory that a document's examples run in."""
ON_LESS = [
    ("make-corpus corpus --quiet", "make-corpus corpus --quiet --pairs 4000"),
    ("--max-time 10s", "--max-time 2s"),
]
"""Examples of the README as they are run: a large corpus takes a minute and says no more."""
SMALL = """
[data]
source_language = "en"
target_language = "fr"
train = [{ source = "corpus/train.en", target = "corpus/train.fr" }]
valid = [{ source = "corpus/valid.en", target = "corpus/valid.fr" }]
[tokenizer]
vocab_size = 700
[model]
d_model = 32
n_heads = 4
d_ff = 32
n_encoder_layers = 3
n_decoder_layers = 3
norm = "pre"
[training]
tokens_per_batch = 1000
max_steps = 4
warmup_steps = 2
checkpoint_every = 2
inspect_every = 1
[validation]
every = 4
max_sentences = 4
[decoding]
beam_size = 4
max_length = 8
"""


@dataclass
class Example:
    """A command with what the document shows of its output."""

    command: str
    line: int
    """Number of its first line in the document, from 0."""
    shown: tuple[int, int]
    """First line of the output shown, and the line behind its last."""


@dataclass
class Block:
    """A fenced code block."""

    language: str
    line: int
    """Number of its first line behind the fence, from 0."""
    text: str
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def is_run(self) -> bool:
        return self.language in {"sh", "console", "python"} and not NOT_RUN & self.marks.keys()

    def examples(self) -> list[Example]:
        """The commands of a console or sh block."""
        blocks: list[Example] = []
        continues = False
        for number, line in enumerate(self.text.splitlines(), self.line):
            is_command = self.language == "sh" or line.startswith("$ ")
            text = line if continues or self.language == "sh" else line[2:]
            if continues:
                blocks[-1].command += f"\n{text}"
            elif is_command and text.strip() and not text.startswith("#"):
                blocks.append(Example(text, number, (number, number)))
            if continues or is_command:
                continues = line.endswith("\\")
                if blocks:
                    blocks[-1].shown = (number + 1, number + 1)
            else:
                blocks[-1].shown = (blocks[-1].shown[0], number + 1)
        return blocks


def blocks_of(document: Path) -> list[Block]:
    """The code blocks of a document, with the marks before them."""
    blocks: list[Block] = []
    marks: dict[str, str] = {}
    lines = document.read_text(encoding="utf-8").splitlines()
    inside: Block | None = None
    for number, line in enumerate(lines):
        stripped = line.strip()
        if inside is not None:
            if stripped == "```":
                blocks.append(inside)
                inside = None
            else:
                inside.text += f"{line}\n"
        elif stripped.startswith("```"):
            inside = Block(stripped[3:], number + 1, "", marks)
            marks = {}
        elif match := re.fullmatch(r"<!-- (\w+)(?:: (.*))? -->", stripped):
            marks[match[1]] = match[2] or ""
        elif stripped:
            marks = {}
    assert inside is None, f"{document}: a code block does not end"
    return blocks


def name_of(document) -> str | None:
    return os.path.relpath(document, ROOT) if isinstance(document, Path) else None


every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)


# The examples


@pytest.fixture(scope="session")
def shell():
    with ExampleShell(SCREEN) as shell:
        yield shell


@pytest.fixture(scope="session")
def desk(shell, tmp_path_factory):
    """The directory that `DESK` describes; examples run in copies of it."""
    desk = tmp_path_factory.mktemp("desk")
    (desk / "small.toml").write_text(SMALL)
    template = (ROOT / "recipes/template.toml").read_text(encoding="utf-8")
    quick = re.sub(r"max_epochs = \d+", "max_steps = 2", template)
    quick = re.sub(r"vocab_size = \d+", "vocab_size = 400", quick)
    quick = quick.replace(
        'preset = "tiny"', "d_model = 32\nn_heads = 4\nd_ff = 32\nn_encoder_layers = 1"
    )
    (desk / "my-recipe.toml").write_text(quick.replace("beam_size = 5", "max_length = 8"))
    setup = """\
    tformer make-corpus corpus --pairs 400 --quiet
    tformer train small.toml -o runs/quickstart --quiet
    for name in mine other early en-fr fr-en; do cp -r runs/quickstart runs/$name; done
    for part in en fr; do head -3 corpus/test.$part > in.$part; cp in.$part a.$part; done
    mv in.en in.txt; cp in.txt new.en; cp in.txt log.en; cp in.txt test.en; cp in.fr test.de
    for part in en fr; do head -240 corpus/train.$part > train.$part; done; mv train.fr train.de
    head -20 corpus/valid.en > valid.en; head -20 corpus/valid.fr > valid.de
    paste valid.en valid.de > pairs.tsv
    gzip -c in.txt > news.en.gz
    printf 'old\\tvieux\\ncat\\tchien\\tban\\n' > terms.tsv
    """
    status, screen = shell.run(f"set -e\n{setup}", desk)
    assert status == 0, screen
    (desk / "reviews.csv").write_text('id,text\n1,"The cat, I saw."\n2,"The old\nhouse."\n')
    records = [{"id": 1, "text": "The cat is old."}, {"id": 2, "text": "The dog is tired."}]
    (desk / "articles.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    texts = [{"text": "The cat is old."}, {"text": "The dog is tired."}]
    (desk / "crawl.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in texts))
    pair = json.dumps({"en": "The cat is old.", "de": "Le chat est vieux."})
    (desk / "pairs.jsonl").write_text(f"{pair}\n" * 4)
    return desk


def as_shown(screen: str) -> list[str]:
    return [line.rstrip() for line in screen.rstrip().splitlines()]


def is_as_shown(screen: list[str], shown: list[str]) -> bool:
    pattern = "".join(r"(?:.*\n)*?" if line == "…" else f"{re.escape(line)}\n" for line in shown)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in screen)) is not None


def run_examples(
    document: Path, shell, directory: Path, is_compared, *, desk: Path | None = None, writes=False,
    on_less=(),
) -> list[str]:  # fmt: skip
    """Runs a document's examples; returns its lines as they are with what came out."""
    lines = document.read_text(encoding="utf-8").splitlines()
    changes: list[tuple[slice, list[str]]] = []
    for block in blocks_of(document):
        if not block.is_run:
            continue
        for name in block.marks.get("files", "").split():
            shutil.copy(desk / name, directory)
        expected = {int(block.marks.get("exits", 0))}
        if block.language == "python":
            (directory / "example.py").write_text(block.text, encoding="utf-8")
            status, screen = shell.run("python example.py", directory)
            where = f"{name_of(document)}, line {block.line + 1}"
            assert status in expected, f"{where}:\n{screen}"
            assert screen.strip(), f"{where}: the program prints nothing"
            continue
        for example in block.examples():
            where = f"{name_of(document)}, line {example.line + 1}: {example.command}"
            if re.search(r"\bjq\b", example.command) and shutil.which("jq") is None:
                continue
            command = example.command
            for much, less in on_less:
                command = command.replace(much, less)
            status, screen = shell.run(command, directory)
            closes_pipe = {141} if re.search(r"\bhead\b", example.command) else set()
            assert status in expected | closes_pipe, f"{where}\nends with {status}:\n{screen}"
            place = slice(*example.shown)
            shown = [line.rstrip() for line in lines[place]]
            if not shown or not is_compared(block.marks):
                continue
            if writes and "…" not in shown:
                changes.append((place, as_shown(screen)))
            else:
                assert is_as_shown(as_shown(screen), shown), f"{where}\nprints\n{screen}"
    for place, text in reversed(changes):
        lines[place] = text
    return lines


def reader_directory(document: Path, desk: Path, scratch: Path) -> Path:
    """A copy of the desk; for the README, what its reader has after `tformer quickstart`."""
    if document != README:
        return shutil.copytree(desk, scratch / "desk")
    shutil.copytree(desk / "runs/quickstart", scratch / "desk/runs/quickstart")
    return scratch / "desk"


@pytest.mark.parametrize("document", PAGES, ids=name_of)
def test_the_examples_run(document, shell, desk, tmp_path):
    directory = reader_directory(document, desk, tmp_path)
    run_examples(
        document,
        shell,
        directory,
        lambda marks: not {"quickstart", "varies"} & marks.keys(),
        desk=desk,
        on_less=ON_LESS if document == README else (),
    )


@pytest.mark.long
@pytest.mark.skipif(not REAL_RUN, reason="TFORMER_QUICKSTART_RUN names no run")
@pytest.mark.parametrize("document", PAGES, ids=name_of)
def test_the_outputs_are_those_of_the_quickstart(document, shell, desk, tmp_path):
    directory = reader_directory(document, desk, tmp_path)
    for old in (directory / "runs/quickstart", directory / "runs/early"):
        shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(REAL_RUN, old)
    setup = "tformer translate runs/early -q Hello."
    if document != README:
        setup += "; rm -r corpus; tformer make-corpus corpus -q"
    status, screen = shell.run(setup, directory)
    assert status == 0, screen
    lines = run_examples(
        document, shell, directory, lambda marks: "quickstart" in marks, desk=desk, writes=WRITES
    )
    if WRITES:
        document.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_a_program_that_fails_fails_its_example(shell, tmp_path):
    document = tmp_path / "page.md"
    for line in ("tformer translate nowhere hello", "exit 3", "tformer translate nowhere | cat"):
        document.write_text(f"```sh\n{line}\n```\n")
        with pytest.raises(AssertionError, match="ends with"):
            run_examples(document, shell, tmp_path, bool)
    document.write_text("```console\n$ echo a; echo b\na\nc\n```\n")
    with pytest.raises(AssertionError, match="prints"):
        run_examples(document, shell, tmp_path, lambda _: True)
    document.write_text("```console\n$ seq 9\n1\n…\n8\n9\n$ true\n```\n")
    run_examples(document, shell, tmp_path, lambda _: True)


# Names of commands, options, keys, files


def options_of(command) -> set[str]:
    return {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("-")
    } | {"-h", "--help", CITE}


def all_commands() -> dict[str, object]:
    """Every command by its words, such as "tokenize encode"."""
    commands = {"": typer.main.get_command(app)}
    for name, command in commands[""].commands.items():
        commands[name] = command
        for inner, last in getattr(command, "commands", {}).items():
            commands[f"{name} {inner}"] = last
    return commands


COMMANDS = all_commands()
ALL_OPTIONS = set().union(*map(options_of, COMMANDS.values()))


def calls_in(text: str) -> list[list[str]]:
    """The words of every call of tformer or of a benchmark script in a shell command."""
    try:
        parser = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
        parser.whitespace = " \t\r"
        parser.whitespace_split = True
        words = [word for word in parser if word != "\\"]
    except ValueError:  # an apostrophe in a sentence
        words = text.split()
    calls: list[list[str]] = []
    is_open = False
    for word in words:
        if word in {"tformer", "tformer_cli"} or word.startswith("tests/benchmarks/"):
            calls.append([word])
            is_open = True
        elif set(word) <= set("();<>|&\n") and set(word) - set("<>"):
            is_open = False
        elif is_open:
            calls[-1].append(word)
    return calls


def faults_of(call: list[str]) -> list[str]:
    """What is not as in the parsers; words that are no options and no command are values."""
    program, *words = call
    options = [re.split("[=/]", word)[0] for word in words if re.match(r"--\w", word)]
    if program.startswith("tests/benchmarks/"):
        known = BENCHMARK_OPTIONS if (ROOT / program).is_file() else set()
        return [f"{program} {option}" for option in options if option not in known]
    while words and words[0].startswith("--"):
        words.pop(0)
    name = words[0] if words else ""
    if name == "inspect" and len(words) > 1:  # tformer inspect heads
        name = f"inspect-{words[1]}"
    elif len(words) > 1 and f"{name} {words[1]}" in COMMANDS:
        name = f"{name} {words[1]}"
    if not re.fullmatch(r"[a-z][a-z-]*( [a-z]+)?", name):
        name = ""  # COMMAND, an ellipsis
    if name not in COMMANDS:
        return [f"tformer {name}"]
    known = options_of(COMMANDS[name]) | (set() if name else ALL_OPTIONS)
    return [f"tformer {name} {option}" for option in options if option not in known]


def prose_of(document: Path) -> str:
    """The text without code blocks and comments."""
    text = document.read_text(encoding="utf-8")
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def spans_of(document: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose_of(document))


@pytest.mark.parametrize("readme", [README])
def test_the_readme_is_read_in_one_sitting(readme):
    assert len(readme.read_text(encoding="utf-8").splitlines()) <= 250


@every_document
def test_every_mark_is_known(document):
    for block in blocks_of(document):
        assert block.marks.keys() <= MARKS, block
        assert block.language in LANGUAGES, block


@every_document
def test_every_command_and_option_exists(document):
    faults = []
    for block in blocks_of(document):
        for example in block.examples() if block.language in {"sh", "console"} else []:
            for call in calls_in(example.command):
                faults += faults_of(call)
    for span in spans_of(document):
        first = span.split()[0] if span.split() else ""
        if first in COMMANDS and "--" in span:
            span = f"tformer {span}"
        if span.startswith("tformer "):
            for call in calls_in(span):
                faults += faults_of(call)
        elif first.startswith("--"):
            option = re.split("[=/]", first)[0]
            if option not in ALL_OPTIONS | BENCHMARK_OPTIONS:
                faults.append(option)
    assert faults == []


def test_unknown_options_and_commands_are_found():
    assert faults_of(["tformer", "translate", "M", "--beam-size", "3"]) == []
    assert faults_of(["tformer", "translate", "M", "--bem-size=3"]) == [
        "tformer translate --bem-size"
    ]
    assert faults_of(["tformer", "tranlate"]) == ["tformer tranlate"]
    assert calls_in("zcat a | tformer translate M > b; tformer plot R") == [
        ["tformer", "translate", "M", ">", "b"],
        ["tformer", "plot", "R"],
    ]


def recipe_keys() -> set[str]:
    recipe = load_recipe("quickstart").to_mapping()
    return {f"{table}.{key}" for table, keys in recipe.items() for key in keys} | {
        f"data.{part}.0.{key.name}" for part in ("train", "valid") for key in fields(CorpusConfig)
    }


@every_document
def test_every_recipe_key_exists(document):
    tables = "|".join(load_recipe("quickstart").to_mapping())
    named = {
        match[0]
        for span in [*spans_of(document), *(block.text for block in blocks_of(document))]
        for match in re.finditer(
            rf"(?<![\w./-])(?:{tables})\.[a-z_0-9]+(?:\.0\.\w+)?(?![\w.])", span
        )
    }
    files = {"model.safetensors", "model.bin", "model.npz"}
    files |= {"tokenizer.json", "tokenizer.model", "tokenizer.bin", "training.ipynb"}
    start = {"model.from", "model.frozen"}  # of runs that start from a model alone
    assert named - recipe_keys() - files - start == set()


@every_document
def test_every_part_of_a_recipe_fits(document, tmp_path):
    base = {
        "data": {"train": [{"tsv": "x.tsv"}], "valid": [{"tsv": "x.tsv"}]},
        "training": {"max_steps": 1},
    }
    for block in blocks_of(document):
        if block.language == "toml":
            part = tomllib.loads(block.text)
            whole = {
                table: {**base.get(table, {}), **part.get(table, {})} for table in {**base, **part}
            }
            file = tmp_path / "part.toml"
            import tomli_w

            file.write_text(tomli_w.dumps(whole), encoding="utf-8")
            load_recipe(str(file))


@every_document
def test_every_piece_of_json_is_json(document):
    for block in blocks_of(document):
        if block.language == "json":
            assert json_values(block.text)


@every_document
def test_every_environment_variable_is_read_somewhere(document):
    code = "".join(
        file.read_text(encoding="utf-8")
        for folder in ("tformer_cli", "tests")
        for file in (ROOT / folder).rglob("*.py")
    )
    for name in set(re.findall(r"TFORMER_[A-Z_]+", document.read_text(encoding="utf-8"))):
        assert f'"{name}"' in code, name


@every_document
def test_no_cell_of_a_table_is_split_by_its_code(document):
    for line in prose_of(document).splitlines():
        if line.startswith("|"):
            assert not any("|" in span.replace("\\|", "") for span in re.findall(r"`[^`]*`", line))


def anchors_of(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose_of(document), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@every_document
def test_every_link_and_picture_is_there(document):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(document)):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = document.parent / path if path else document
        assert file.exists(), target
        assert not anchor or anchor in anchors_of(file), target
        if GUIDE in document.parents:
            assert file.parent == GUIDE, f"{target} is not in the wheel"


def test_every_box_of_the_figure_leads_to_a_section_of_its_guide():
    figure = (GUIDE / "transformer.svg").read_text(encoding="utf-8")
    assert len(figure.encode()) <= 10_000
    links = re.findall(r'<a href="([^"]*)">', figure)
    assert figure.count("<a ") == figure.count("</a>") == len(links)
    page = GUIDE / "how-a-transformer-works.md"
    sections = {f"#{anchor}" for anchor in anchors_of(page)}
    assert set(links) <= sections
    # and each section has its box
    assert sections - set(links) == {"#how-a-transformer-works"}


def banned_in(text: str) -> list[str]:
    return [match[0] for match in re.finditer("|".join(BANNED), text, re.IGNORECASE)]


@every_document
def test_no_document_says_what_nobody_says(document):
    assert banned_in(prose_of(document)) == []


def texts_of(module: Path) -> str:
    """The strings of a module, a line each, as messages are; docstrings, quoted; and comments."""
    code = module.read_text(encoding="utf-8")
    nodes = [*ast.walk(ast.parse(code))]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    strings = [
        '"""' * (id(node) in docstrings) + " ".join(node.value.split())
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    comments = re.findall(r"# .*(?:\n *# .*)*", code)
    return "\n".join([*strings, *(re.sub(r"\n *# ", " ", comment) for comment in comments)])


def test_no_help_message_or_recipe_says_what_nobody_says():
    modules = (ROOT / "tformer_cli").rglob("*.py")
    banned = {name_of(module): banned_in(texts_of(module)) for module in modules}
    for phrase in ("it comes to 3", "is of images; omit it", "of images alone", '"""What it is.'):
        assert banned_in(phrase)
    texts = [*recipes_directory().glob("*.toml"), *(ROOT / "tests/cli/help").glob("*.txt")]
    banned |= {name_of(text): banned_in(text.read_text(encoding="utf-8")) for text in texts}
    assert {name: words for name, words in banned.items() if words} == {}


@pytest.mark.parametrize("guide", GUIDES, ids=name_of)
def test_a_guide_begins_with_its_title_and_a_sentence(guide):
    title, blank, summary, *_ = guide.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(r"# \w[\w, ]+", title)
    assert blank == ""
    assert re.fullmatch(r"[A-Z][^.:`]+\.", summary)


def test_every_guide_is_listed():
    topics = {
        "changes", "citing", "classifying", "comparing", "encoders", "formats", "glossary",
        "images", "inspecting", "interpretability", "language-models",
    }  # fmt: skip
    topics |= {"distilling", "performance", "python", "serving", "teaching", "training"}
    topics |= {
        "architecture",
        "documents",
        "extending",
        "how-a-transformer-works",
        "translating",
        "ci",
    }
    assert {file.stem for file in GUIDES} == topics
    listed = " ".join(CliRunner().invoke(app, ["guide"]).stdout.split())
    for guide in GUIDES:
        summary = guide.read_text(encoding="utf-8").splitlines()[2]
        assert f"{guide.stem} {summary}" in listed


# The formats


MACHINE_READABLE = """\
translate runs/mine -i in.txt --n-best 2 --token-scores --flags --alignments soft --format jsonl
score runs/mine --source in.txt --target-file in.fr --format jsonl
evaluate runs/mine --source in.txt --reference in.fr --format json
inspect-heads runs/mine -i in.txt --weights
inspect-heads runs/mine -i in.txt --corpus
inspect-heads runs/mine --over-time
inspect-flow runs/mine -i in.txt
inspect-logits runs/mine -i in.txt --lens
inspect-positions runs/mine
inspect-step runs/mine "The cat is old." --token 0 --head cross.0.0 --quiz
inspect-align runs/mine -i a.en --target-file a.fr --gold a.align
inspect-ablate runs/mine -i in.txt --reference in.fr --scores 1 --write-pruned pruned --keep 30
inspect-diff runs/mine runs/other -i in.txt --maps
tokenize stats runs/mine in.txt --format json
info runs/mine --format json
"""
FREE_KEYS = {"methods", "first_steps", "metrics", "axes", "models", "ci95"}
"""Objects whose keys are names of metrics, roles, kinds and the like."""


def json_values(text: str) -> list:
    """The values of a text that holds one or several."""
    decoder, values = json.JSONDecoder(), []
    while text := text.strip():
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:]
    return values


def keys_in(value) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(keys_in, value[:2]), *map(keys_in, value[-1:]))
    if not isinstance(value, dict):
        return set()
    inner = (keys_in(item) for name, item in value.items() if name not in FREE_KEYS)
    return set(value).union(*inner)


def test_every_field_and_schema_is_in_the_guide_to_formats(shell, desk, tmp_path):
    text = (GUIDE / "formats.md").read_text(encoding="utf-8")
    settings = {key.split(".")[-1] for key in recipe_keys()}
    directory = shutil.copytree(desk, tmp_path / "desk")
    (directory / "a.align").write_text("0-0\n" * 3)
    for arguments in MACHINE_READABLE.splitlines():
        status, screen = shell.run(f"tformer {arguments} 2> /dev/null | cat", directory)
        assert status == 0, screen
        for value in json_values(screen):
            missing = {key for key in keys_in(value) if f"`{key}`" not in text}
            assert missing - settings == set(), arguments
    for record in (directory / "runs/mine/metrics.jsonl").read_text().splitlines():
        assert {key for key in keys_in(json.loads(record)) if f"`{key}`" not in text} == set()
    for file in (directory / "runs/mine").iterdir():
        assert f"`{file.name}" in text
    code = "".join(
        file.read_text(encoding="utf-8") for file in (ROOT / "tformer_cli").rglob("*.py")
    )
    schemas = set(re.findall(r"tformer\.[a-z]+/\d", code))
    assert {schema for schema in schemas if schema not in text} == set()


# The recipes


def default_of(key) -> str:
    if key.default is MISSING:
        return "required"
    if isinstance(key.default, str):
        return f'`"{key.default}"`'
    if isinstance(key.default, tuple):
        return f"`{json.dumps(key.default)}`"
    return f"`{str(key.default).lower()}`"


def key_tables() -> str:
    lines = []
    in_toml = {name: key for key, name in START_KEYS.items()}
    for title, settings in KEY_TABLES.items():
        lines += [f"**{title}**", "", "| key | default | meaning |", "|---|---|---|"]
        sentences = sentences_of(settings)
        for key in fields(settings):
            meaning = sentences[key.name].replace("|", "\\|")
            name = in_toml.get(key.name, key.name) if settings is StartConfig else key.name
            lines.append(f"| `{name}` | {default_of(key)} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def test_the_recipe_keys_are_those_of_the_code():
    text = RECIPES.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    expected = f"{before}{BEGIN}\n\n{key_tables()}\n{END}{after}"
    if WRITES:
        RECIPES.write_text(expected, encoding="utf-8")
    assert text == expected or WRITES


@pytest.mark.parametrize("settings", KEY_TABLES.values(), ids=lambda kind: kind.__name__)
def test_every_setting_has_its_sentence(settings):
    assert set(sentences_of(settings)) == {key.name for key in fields(settings)}


def test_every_shipped_recipe_is_named_and_nothing_else_is_a_recipe():
    text = RECIPES.read_text(encoding="utf-8")
    for name in recipe_names():
        assert f"`{name}`" in text
    assert (recipes_directory() / "README.md").is_file()
    assert "README" not in recipe_names()


def test_what_the_architecture_names_is_there():
    package, text = ROOT / "tformer_cli", (GUIDE / "architecture.md").read_text(encoding="utf-8")
    for path, name in re.findall(r"`(\w[\w/]*\.py)`(?: `(\w+)`)?", text):
        source = (package / path).read_text(encoding="utf-8")
        assert not name or re.search(rf"^ *(def|class) {name}\b", source, re.MULTILINE), (
            path,
            name,
        )
    folders = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    assert all((package / name).exists() or (package / f"{name}.py").exists()
               for row in folders for name in re.findall(r"`(\w+)`", row))  # fmt: skip
