"""Kinds of errors, each with its exit status.

A message is one line that a user can act on, ``WHERE: WHAT IS WRONG; WHAT TO DO``. WHERE is an
option (``--set``), a file and line (``train.tsv, line 3``), a recipe's key (``r.toml:
model.d_model``) or a directory; details of WHAT are in parentheses: ``a.en: cannot be read
(permission denied); name another file``.
"""


class TformerError(Exception):
    """The work failed while running (exit status 1)."""

    exit_status = 1


class UsageError(TformerError):
    """An option, or a combination of options, cannot be used (exit status 2)."""

    exit_status = 2


class RecipeError(TformerError):
    """A recipe cannot be read or asks for something impossible (exit status 2)."""

    exit_status = 2


class DataError(TformerError):
    """An input file is missing, damaged or not what it should be (exit status 2)."""

    exit_status = 2


class ArtifactError(TformerError):
    """A model directory, run directory or checkpoint cannot be used (exit status 2)."""

    exit_status = 2


class ModelMemoryError(MemoryError):
    """A model's weights do not fit into memory; smaller batches would not help."""


class UnreadableError(ArtifactError):
    """A file is there, but the system did not read it: nothing is known of its content."""


class Interrupted(TformerError):  # noqa: N818 - an ordinary end of a run, not a failure
    """A run ended early on request; its state is saved (exit status 128 + the signal's number)."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_status = 128 + signal_number


class ProcessLost(TformerError):  # noqa: N818 - the failure is another one's
    """Another training process has ended or cannot be reached."""


class AnotherProcessFailed(TformerError):  # noqa: N818 - the failure is another one's
    """Another training process has failed and reported why; this one ends silently."""

    def __init__(self, exit_status: int = 1) -> None:
        super().__init__("")
        self.exit_status = exit_status
