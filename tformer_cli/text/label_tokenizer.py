"""Labels as the target side of a tokenizer: a label is one token.

So a text and its label are a pair like any other, which cache, loader and loss take.
"""

import json
from collections.abc import Sequence

from tformer_cli.errors import DataError
from tformer_cli.text.tokenizer import EOS_ID, Span, Tokenizer, TokenizerSide
from tformer_cli.text.vocabulary import label_of
from tformer_cli.wording import is_blank

FIRST_LABEL = EOS_ID + 1


class LabelSide(TokenizerSide):
    """Labels to ids and back; white space around a label does not count."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.names = tuple(labels)
        self._numbers = {label: FIRST_LABEL + i for i, label in enumerate(self.names)}

    @property
    def vocab_size(self) -> int:
        return FIRST_LABEL + len(self.names)

    def encode_phrases(self, texts: Sequence[str]) -> list[list[int]]:
        """The id of each label; a blank has none."""
        return [[] if is_blank(text) else [self._number(text)] for text in texts]

    def _number(self, text: str) -> int:
        # an unknown label is an error and not <unk>: it would be trained as a class
        number = self._numbers.get(text.strip())
        if number is None:
            known = ", ".join(json.dumps(label, ensure_ascii=False) for label in self.names[:10])
            more = f" and {len(self.names) - 10} more" if len(self.names) > 10 else ""
            raise DataError(
                f"data: {json.dumps(text.strip(), ensure_ascii=False)} is not one of the labels "
                f"{known}{more} of the training data or task.labels; correct the data"
            )
        return number

    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        return [
            (ids, [(0, len(text))] * len(ids))
            for text, ids in zip(texts, self.encode_phrases(texts), strict=True)
        ]

    def with_dropout(
        self,
        texts: Sequence[str],
        keys: Sequence[int],  # noqa: ARG002 - a label is one piece
        dropout: float,  # noqa: ARG002
        seed: int,  # noqa: ARG002
    ) -> list[list[int]]:
        """See `TokenizerSide`: a label is never cut."""
        return self.encode_phrases(texts)

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.names[label - FIRST_LABEL] for label in ids if label >= FIRST_LABEL)

    @property
    def piece_bytes(self) -> list[bytes]:
        """The bytes of each label; none for special tokens."""
        return [b""] * FIRST_LABEL + [label.encode() for label in self.names]

    @property
    def _labels(self) -> list[str]:
        return ["<pad>", "<unk>", "<s>", "</s>", *(label_of(n.encode()) for n in self.names)]


class LabelTokenizer(Tokenizer):
    """The tokenizer of texts on the source side, labels on the target side."""

    _target: LabelSide

    def __init__(self, texts: Tokenizer, labels: Sequence[str]) -> None:
        self._texts, self._source, self._target = texts, texts.source, LabelSide(labels)
        self.algorithm, self.new_tokens = texts.algorithm, texts.new_tokens

    @property
    def target(self) -> LabelSide:
        return self._target

    def to_json(self) -> str:
        """A text that names both sides; it differs whenever their ids do."""
        return json.dumps({"labels": self._target.names, "texts": self._texts.to_json()})

    def with_new_tokens(self, words: Sequence[str]) -> "LabelTokenizer":
        """See `Tokenizer`: texts get them."""
        return LabelTokenizer(self._texts.with_new_tokens(words), self._target.names)
