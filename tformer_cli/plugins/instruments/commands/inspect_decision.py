"""`tformer inspect-decision`: why a model writes one word and not another."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Unpack

from tformer_cli.artifacts.config_file import check_model
from tformer_cli.cli.inspect.inspect_view import (
    OpeningArguments,
    emit_view,
    open_model,
    takes_opening_options,
    view_format,
    view_format_option,
)
from tformer_cli.cli.options import ModelArgument, OutputOption, QuietOption, option_field
from tformer_cli.cli.progress import counted_steps
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    file_lines,
    input_lines,
    warn_of_bytes,
)
from tformer_cli.errors import UsageError
from tformer_cli.inspect.view import SourceOption, TextsArgument
from tformer_cli.plugins.instruments.views.decision import VIEW, DecisionOptions
from tformer_cli.text.lines import LineCounts, check_file
from tformer_cli.wording import is_blank


@dataclass(frozen=True, kw_only=True)
class WordOptions:
    """Words between which is decided, and texts that values are drawn from."""

    target: str | None = option_field(
        None,
        "A, the word, piece or label that the model chooses; for a tagger, the word whose label "
        "to look at.",
        shown="the model's choice",
        metavar="TEXT",
    )
    foil: str | None = option_field(
        None,
        "B, the word, piece or label that the model rejects.",
        shown="that of OTHER, else the second most probable",
        metavar="TEXT",
    )
    corpus: Path | None = option_field(
        None,
        "Sentences from which mean and resample take values; reads the first 64.",
        shown="the sentences given",
        role="reads_file",
    )


@takes_opening_options
def inspect_decision(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    source: SourceOption = None,
    words: WordOptions,
    options: DecisionOptions,
    output_format: Annotated[str | None, view_format_option(VIEW)] = None,
    output: OutputOption = STANDARD_STREAM,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Find what makes a model choose one word over another.

    TEXT is one sentence or two. With two, the decision is where their translations first differ,
    between the words A and B written there. With one, it is where the model is least certain of the
    word A, or at --target. For every head, layer, attention weight and token you see the effect on
    d = logit(A) - logit(B): when it is changed (ablation, patching from the other sentence), or its
    own share of d. A ! marks heads that reverse the decision. For a language model, the decision is
    the next token after TEXT; for a classifier, the label; for a masked model, a gap; for a tagger,
    the label of a word.

    Examples:
        tformer inspect-decision runs/quickstart "The animal was tired." "The street was tired."
        tformer inspect-decision runs/quickstart "The animal was tired." --target fatigué
        tformer inspect-decision runs/ratings "not too terrible" --foil 5 --method zero --top 5
    """
    for name, word in (("--target", words.target), ("--foil", words.foil)):
        if word is not None and is_blank(word):  # a script's unset variable
            raise UsageError(f"{name}: is empty; name a word, or omit it")
    chosen = view_format(VIEW, output_format, output)
    check_model(model, VIEW.tasks)
    corpus = words.corpus
    if not text:
        check_stdin_is_read_once([source or STANDARD_STREAM, corpus and str(corpus)])
    if corpus is not None and str(corpus) != STANDARD_STREAM:
        check_file(corpus)
    counts = LineCounts()
    lines = input_lines(text, source, counts, "--source", quiet=quiet)
    # One more than two, so that more are an error
    sentences = list(islice(lines, 3))
    options.check(len(sentences))
    others = None if corpus is None else file_lines(str(corpus), counts, quiet=quiet)

    from tformer_cli.plugins.instruments.jobs.decision import inspect_decision as decide

    opened = open_model(model, opening, quiet=quiet, tasks=VIEW.tasks)
    with counted_steps("explaining", quiet=quiet) as before_batch:
        record = decide(
            opened,
            sentences,
            target=words.target,
            foil=words.foil,
            corpus=others,
            settings=options,
            before_batch=before_batch,
            seed=opening["seed"],
        )
    emit_view(VIEW, [record], chosen, output, options)
    warn_of_bytes(counts)
