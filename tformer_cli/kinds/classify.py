"""Classifiers: a text in, the probabilities of labels out."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tformer_cli.kinds.kind import Kind

if TYPE_CHECKING:
    from tformer_cli.artifacts.config_file import TaskKind


class Classify(Kind):
    """An encoder with a row for each label."""

    name: ClassVar[TaskKind] = "classify"
    verbs = ("classify", "embed", "score")
    methods = ("classify", "embed")


KIND = Classify()
