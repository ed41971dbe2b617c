"""Base class of records of a sentence; it imports nothing, as the help of a view needs it."""

from reprlib import Repr
from typing import Protocol

_SHORT = Repr()
_SHORT.maxstring = 40


class _Texts(Protocol):
    @property
    def source(self) -> str: ...
    @property
    def shown_target(self) -> str: ...


class _OfTexts(Protocol):
    @property
    def sentence(self) -> _Texts: ...


class SentenceRecord:
    """Base class of records of a sentence, which print as its translation; they hold large maps."""

    @property
    def text(self: _OfTexts) -> str:
        """The translation or the given target; the label, or the text with its gaps filled."""
        return self.sentence.shown_target

    def __str__(self: _OfTexts) -> str:
        return self.sentence.shown_target

    def __repr__(self: _OfTexts) -> str:
        texts = self.sentence.source, self.sentence.shown_target
        return f"<{type(self).__name__}: {', '.join(map(_SHORT.repr, texts))}>"
