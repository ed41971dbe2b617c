"""`tformer inspect-circuit`: the fewest heads that keep a decision, and in how many models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from tformer_cli.artifacts.config_file import check_model
from tformer_cli.cli.inspect.inspect_view import (
    OpeningArguments,
    emit_view,
    open_model,
    takes_opening_options,
    view_format,
    view_format_option,
)
from tformer_cli.cli.options import (
    ModelArgument,
    OutputOption,
    QuietOption,
    argument,
    option_field,
)
from tformer_cli.cli.progress import counted_steps
from tformer_cli.cli.streams import STANDARD_STREAM, file_lines, note, warn_of_bytes
from tformer_cli.plugins.instruments.views.circuit import VIEW, CircuitOptions, CircuitsRecord
from tformer_cli.text.lines import LineCounts
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.plugins.instruments.minimal_pairs import MinimalPair


@takes_opening_options
def inspect_circuit(
    model: ModelArgument,
    pairs: str = argument(
        "PAIRS",
        "A built-in kind of pairs (pronoun, agreement, number, negation, rating, repeats), or a "
        "file with tab-separated SENTENCE, OTHER and, optionally, TARGET and FOIL on each line.",
        role="reads_file",
    ),
    *,
    models: list[Path] | None = option_field(
        None,
        "Another model, such as one trained with another seed. Repeatable.",
        metavar="MODEL",
        role="reads_model",
    ),
    options: CircuitOptions,
    output_format: Annotated[str | None, view_format_option(VIEW)] = None,
    output: OutputOption = STANDARD_STREAM,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Find the fewest heads that keep a decision.

    The sentences of a pair differ in a word that decides another word: it was too tired (il), it
    was too wide (elle). Half of the pairs choose the heads that keep the decision when every other
    head computes what it does in the other sentence; the other half tests these heads. With
    --models, each model has its own circuit, and a table counts the models whose circuit includes
    each kind and layer.

    Examples:
        tformer inspect-circuit runs/quickstart pronoun
        tformer inspect-circuit runs/ratings rating --models runs/seed-2 --models runs/seed-3
        tformer inspect-circuit runs/quickstart pairs.tsv --faithfulness 0.8
    """
    chosen = view_format(VIEW, output_format, output)
    places = [model, *(models or [])]
    for place in places:
        check_model(place, VIEW.tasks)

    counts = LineCounts()
    corpus = _find_pairs(pairs, counts, options.draw, quiet=quiet)

    from tformer_cli.plugins.instruments.jobs.circuit import inspect_circuit as find

    def open_models() -> "Iterator[Opened]":
        for place in places:
            note(f"finding the circuit of {place}", quiet=quiet)
            yield open_model(place, opening, quiet=quiet, tasks=VIEW.tasks)

    seed = opening["seed"]
    with counted_steps("patching", quiet=quiet) as step:
        record = find(
            open_models(), corpus, name=pairs, settings=options, before_batch=step, seed=seed
        )
    if not isinstance(corpus, str):
        _note_refused(record, quiet=quiet)
    emit_view(VIEW, [record], chosen, output, options)
    warn_of_bytes(counts)


def _find_pairs(
    pairs: str, counts: LineCounts, n_drawn: int, *, quiet: bool
) -> "str | list[MinimalPair]":
    """Reads the pairs of a file, or makes sure that there is such a kind."""
    from tformer_cli.plugins.instruments.minimal_pairs import check_name, read_pairs

    # Not is_file: a pipe such as <(head pairs.tsv) is read, too
    if pairs != STANDARD_STREAM and (not Path(pairs).exists() or Path(pairs).is_dir()):
        check_name(pairs)
        return pairs
    minimal_pairs = list(read_pairs(file_lines(pairs, counts, quiet=quiet), pairs))
    if n_again := counts.lines - len(minimal_pairs):
        again = count_of(n_again, "line")
        note(f"{again} skipped: blank or repeated pairs", quiet=quiet)
    if len(minimal_pairs) > n_drawn:
        note(f"drawing {n_drawn} of {len(minimal_pairs):,} pairs; --draw N takes more", quiet=quiet)
    return minimal_pairs


def _note_refused(record: CircuitsRecord, *, quiet: bool) -> None:
    for row in record.models:
        if row.refused:
            n_refused = count_of(len(row.refused), "pair")
            note(f"{row.model.name} refused {n_refused}, such as {row.refused[0]}", quiet=quiet)
