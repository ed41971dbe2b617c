"""Work that was begun goes on only from what it was begun with."""

from collections.abc import Mapping

from tformer_cli.errors import ArtifactError


def check_same_origin(
    found: Mapping[str, str], wanted: Mapping[str, str], where: object, advice: str
) -> None:
    """Compares the inputs and settings of unfinished work with those that it is to resume with.

    Args:
        found: names of inputs and settings with their values, as they were recorded.
        wanted: those of now.
        where: the record, for the message.
        advice: the way out.

    Raises:
        ArtifactError: naming those that differ.
    """
    names = {*found, *wanted}
    differing = sorted(name for name in names if found.get(name) != wanted.get(name))
    if differing:
        raise ArtifactError(
            f"{where}: was started with a different {', '.join(differing)}; {advice}"
        )
