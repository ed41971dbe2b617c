"""The built-in corpora as files."""

from tformer_cli.grammar.write import write_corpus as make_corpus
from tformer_cli.ratings import write_ratings as make_ratings

__all__ = ["make_corpus", "make_ratings"]
