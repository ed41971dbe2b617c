"""Translation models: a sentence in, its translation out."""

from tformer_cli.kinds.kind import Kind


class Translate(Kind):
    """Encoder and decoder."""

    name = "translate"
    verbs = ("translate", "score")
    methods = ("translate", "score")
    searches = True


KIND = Translate()
