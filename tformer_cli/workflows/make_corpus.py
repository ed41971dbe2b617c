"""The built-in corpus as files."""

from tformer_cli.grammar.write import write_corpus as make_corpus

__all__ = ["make_corpus"]
