"""Changes from a baseline, as `tformer evaluate` shows those of classifiers and language models."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tformer_cli.evaluation.significance import PairedDifference


def change_record(changes: Sequence["PairedDifference"], test: str) -> dict[str, Any]:
    """Makes the fields of a JSON object that tell of changes."""
    return {
        "changes": [
            {
                "measure": one.name.lower().replace(" ", "_"),
                "baseline": one.baseline,
                "value": one.value,
                "difference": one.difference,
                "ci95": [one.low, one.high],
                "p_value": one.p_value,
            }
            for one in changes
        ],
        "test": test,
    }


def change_lines(changes: Sequence["PairedDifference"], test: str, digits: int) -> Iterator[str]:
    """Yields a line for each change, then one with the signature of the test."""
    for one in changes:
        interval = f"95 % {one.low:+.{digits}f} to {one.high:+.{digits}f}"
        yield (
            f"{one.name} change  {one.difference:+.{digits}f}  from {one.baseline:.{digits}f}, "
            f"{interval}, p = {one.p_value:.4f}"
        )
    yield f"test  {test}"


def signature(units: str) -> str:
    """Describes the test, by what is drawn in it."""
    from tformer_cli.evaluation.significance import RESAMPLES

    return f"paired-bootstrap|units:{units}|resamples:{RESAMPLES}|seed:1"
