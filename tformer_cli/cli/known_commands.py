"""The commands of the program: a row for each, which names the function that runs it."""

from collections.abc import Iterator
from typing import NamedTuple

from tformer_cli.cli.help import (
    ADDED,
    DEPLOY,
    LOOK_INSIDE,
    OTHER_TASKS,
    START,
    TRAIN,
    TRANSLATE,
)
from tformer_cli.sockets import Socket, added_names

INSPECT = "inspect-"


class Command(NamedTuple):
    """A command of the program."""

    place: str
    """MODULE:FUNCTION, or a Typer app or a view, imported when the command runs."""
    summary: str
    """The first sentence of its help: to import all commands for it would take too long."""
    panel: str = ADDED


# Panels, and the commands in each with the first sentence of its help, as a test makes sure.
_SUMMARIES = {
    START: {
        "quickstart": "Train a small model in minutes and look inside it.",
        "guide": "Print a guide, find a word in the guides, or list the topics.",
        "recipes": "List the shipped recipes, show one, or copy one to edit.",
        "models": "List models that MODEL may name by a short name or a pair.",
        "make-corpus": "Write a built-in corpus to files: English and French, ratings, strings or "
        "pictures.",
        "help": "Show the help of a command.",
    },
    TRAIN: {
        "train": "Train a model from a recipe or two aligned files, or resume a run.",
        "study": "Train variants of a recipe with several seeds, and compare them in one table.",
        "distill": "Train a small student on a teacher's translations.",
        "plot": "Plot the training curves of one run or several.",
        "data": "Check, clean, split and deduplicate corpora.",
        "tokenize": "Train, apply and measure tokenizers.",
    },
    TRANSLATE: {
        "translate": "Translate text, one line out for each line in, or a document.",
        "translate-corpus": "Translate corpora into shards of the same format, with all columns.",
        "evaluate": "Score translations (BLEU, chrF, TER), labels or texts.",
        "compare": "Compare several systems: scores, significance and differing sentences.",
        "score": "Score existing translations, labels or texts by the model's probabilities.",
        "calibrate": "Calibrate `translate --doubt` on held-out text.",
    },
    OTHER_TASKS: {
        "classify": "Label texts or images: one line out for each line in.",
        "tag": "Label the words of texts: one line out for each line in.",
        "generate": "Continue prompts with a language model.",
        "fill": "Fill gaps in texts with a masked language model: one line out for each line in.",
        "embed": "Turn texts or images into vectors with an encoder: one row out for each line in.",
    },
    DEPLOY: {
        "info": "Show what a model is and how it was trained, or how far a job is.",
        "import": "Convert another tool's model to a model directory.",
        "export": "Export a model to CTranslate2, Hugging Face, Marian, ONNX, int8 or a web page.",
        "shortlist": "Build a lexical shortlist to speed up translation.",
        "serve": "Serve models over HTTP, with a page to try them.",
        "benchmark": "Measure translation speed, latency and memory.",
    },
    LOOK_INSIDE: {
        "inspect-heads": "Show where every attention head looks in a sentence.",
        "inspect-report": "Write one HTML page with every view of a few sentences.",
        "inspect-step": "Work through one attention head with the model's numbers.",
        "inspect-positions": "Show the position vectors and how similar they are.",
        "inspect-logits": "Show the decoder's candidates, entropy and rank.",
        "inspect-image": "Show where an image model looks: each head's heat map over the image.",
        "inspect-flow": "Show how much the source and the prefix contribute to each token.",
        "inspect-align": "Align words by cross-attention.",
        "inspect-ablate": "Show what a model loses without each of its heads.",
        "inspect-diff": "Match the heads of two models and show what changed.",
        "inspect-decision": "Find what makes a model choose one word over another.",
        "inspect-circuit": "Find the fewest heads that keep a decision.",
        "inspect-layers": "Show what each encoder layer already knows about the translation.",
        "inspect-probe": "Show what each layer knows about words, with linear probes.",
    },
}
_CORPORA, _INSTRUMENTS = "plugins.corpora_tools.commands", "plugins.instruments"
# Places of commands that are not in the file of their name in `cli`.
_PLACES = {
    "recipes": "cli.commands.guide:recipes_app",
    "help": "cli.commands.guide:help_command",
    "tokenize": "plugins.corpora_tools.commands.tokenize:tokenize_app",
    "import": "cli.commands.import_model:import_model",
    **{name: f"{_INSTRUMENTS}.commands.{name}:{name}" for name in ("calibrate", "plot")},
    **{
        name: f"{_CORPORA}.{name}:{name}"
        for name in ("benchmark", "compare", "distill", "shortlist", "study")
    },
    "quickstart": "plugins.built_in.commands.quickstart:quickstart",
    "make-corpus": "plugins.built_in.commands.make_corpus:make_corpus",
    "export": "plugins.interchange.commands.export:export",
    "serve": "plugins.serve.commands.serve:serve",
    "data": f"{_CORPORA}.data:data_app",
    "translate-corpus": f"{_CORPORA}.translate_corpus:translate_corpus",
    **{
        f"inspect-{name}": f"{_INSTRUMENTS}.commands.inspect_{name}:inspect_{name}"
        for name in ("ablate", "layers")
    },
    **{
        f"inspect-{name}": f"{_INSTRUMENTS}.commands.inspect_sentences:inspect_{name}"
        for name in ("report", "step", "diff")
    },
    **{
        f"inspect-{name}": f"{_INSTRUMENTS}.views.{name}:VIEW"
        for name in ("circuit", "decision", "flow", "image", "logits", "positions", "probe")
    },
}


def _place_of(name: str) -> str:
    stem, folder = name.replace("-", "_"), "inspect" if name.startswith(INSPECT) else "commands"
    return f"tformer_cli.{_PLACES.get(name, f'cli.{folder}.{stem}:{stem}')}"


COMMANDS: Socket[Command] = Socket(
    "commands",
    Command,
    {
        name: Command(_place_of(name), summary, panel)
        for panel, summaries in _SUMMARIES.items()
        for name, summary in summaries.items()
    },
)


def find_command(name: str) -> Command | None:
    """Finds a command, or the one of a view that another package adds."""
    row: Command | None = COMMANDS.get(name)
    if row is None and name.startswith(INSPECT):
        row = _added_views().get(name)
    return row


def known_commands() -> Iterator[tuple[str, Command]]:
    """Yields all commands, those of other packages last."""
    yield from COMMANDS.items()
    yield from _added_views().items()


def _added_views() -> dict[str, Command]:
    if not (places := added_names("views")):
        return {}
    from tformer_cli.inspect.views import VIEWS

    return {
        f"{INSPECT}{name}": Command(places[name], view.help.partition("\n")[0])
        for name, view in VIEWS.added.items()
        if view.help
    }
