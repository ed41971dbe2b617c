"""Masked language models: a text with gaps in, tokens that may fill them out."""

from tformer_cli.kinds.kind import Kind


class Masked(Kind):
    """An encoder with a row for each token."""

    name = "masked"
    verbs = ("fill", "embed", "score")
    methods = ("fill", "embed")


KIND = Masked()
