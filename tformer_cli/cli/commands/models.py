"""`tformer models`: models with a short name or for a language pair."""

import json
from typing import TYPE_CHECKING, Annotated

from tformer_cli.cli.format_choice import chosen_format, format_option
from tformer_cli.cli.options import QuietOption, argument
from tformer_cli.cli.streams import STANDARD_STREAM, note, stdout_console, write_line
from tformer_cli.errors import UsageError
from tformer_cli.show.delimited import delimited_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tformer_cli.foreign.known_models import KnownModel

SCHEMA = "tformer.models/1"
FORMATS = ("text", "tsv", "csv", "json")
HEAD = ("name", "for", "license", "MB", "here")


def models(
    pair: str | None = argument(
        "LANG-LANG",
        "Source and target language, such as en-de; without it, lists all models.",
        default=None,
    ),
    *,
    output_format: Annotated[str | None, format_option(FORMATS, "tsv")] = None,
    quiet: QuietOption = False,
) -> None:
    """List models that MODEL may name by a short name or a pair.

    The table ships with tformer; no network is needed. A pair such as en-de stands for the first
    model listed for it; use the others by name. A model is downloaded when first used, and
    verified: Firefox models by the SHA-256 in the table, the others by the Hugging Face hub's
    hashes.

    Examples:
        tformer models en-de
        tformer models --format json | jq -r '.[] | select(.use == "embed").name'
        tformer translate en-de "The old house is green."
    """
    from tformer_cli.foreign.known_models import (
        check_pair,
        downloaded_models,
        known_models,
        models_for,
        through_english,
    )

    candidates: Sequence[KnownModel] = known_models()
    if pair is not None:
        candidates = models_for(pair) or [model for model in candidates if model.name == pair]
        if not candidates:
            check_pair(pair, "")
            raise UsageError(f"LANG-LANG: {pair} is not a pair of languages; write it as en-de")
    here = downloaded_models()
    chosen = chosen_format(output_format, STANDARD_STREAM, FORMATS, "tsv")
    if chosen == "json":
        write_line(json.dumps([_record(model, model.name in here) for model in candidates]))
        return
    rows = [_row(model, model.name in here) for model in candidates]
    if chosen in ("tsv", "csv"):
        for line in delimited_lines((HEAD, *rows), chosen):
            write_line(line)
    else:
        from tformer_cli.show.document import Table
        from tformer_cli.show.terminal import show_blocks

        show_blocks(stdout_console(), [Table(head=HEAD, rows=rows, labels=(), texts=(0, 1, 2, 4))])
    halves = None if pair is None or candidates[0].pairs else through_english(pair)
    if halves:
        note(f"{pair}: smaller ones through English: {' and '.join(halves)}", quiet=quiet)


def _record(model: "KnownModel", is_here: bool) -> dict[str, object]:
    source = {"hub": model.hub} if model.hub else {"urls": [file.url for file in model.files]}
    return {
        "schema": SCHEMA,
        "name": model.name,
        "family": model.family,
        "use": model.use,
        "pairs": list(model.pairs),
        "languages": sorted(model.codes),
        "license": model.license,
        "bytes": model.size or None,
        "downloaded": is_here,
        **source,
    }


def _row(model: "KnownModel", is_here: bool) -> tuple[str, ...]:
    served = " ".join(model.pairs) or model.use
    if model.codes:
        served = f"{len(model.codes)} languages"
    size = f"{model.size / 1e6:.0f}" if model.size else ""
    return model.name, served, model.license, size, "yes" if is_here else "no"
