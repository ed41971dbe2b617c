"""Language models: a prompt in, its continuation out."""

from tformer_cli.kinds.kind import Kind


class LanguageModel(Kind):
    """A decoder without a source."""

    name = "language-model"
    verbs = ("generate", "score")
    methods = ("generate",)
    searches = True


KIND = LanguageModel()
