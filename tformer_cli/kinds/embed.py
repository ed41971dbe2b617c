"""Encoders without a head: a text or image in, a vector out."""

from tformer_cli.kinds.kind import Kind


class Embed(Kind):
    """An encoder by itself; only imports make these, no training does."""

    name = "embed"
    verbs = ("embed",)
    methods = ("embed",)


KIND = Embed()
