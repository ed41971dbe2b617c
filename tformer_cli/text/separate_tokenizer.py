"""A tokenizer with a vocabulary for each language, trained like a joint one."""

import json
from collections.abc import Sequence

from tformer_cli.errors import DataError
from tformer_cli.text.joint_tokenizer import JointTokenizer
from tformer_cli.text.tokenizer import FILE_NAME, VERSION, SideName, Tokenizer, stored_new_tokens


class SeparateTokenizer(Tokenizer):
    """Two vocabularies, so that a model predicts tokens of the target language only."""

    def __init__(self, source: JointTokenizer, target: JointTokenizer) -> None:
        self._sides = {"source": source, "target": target}
        self._source, self._target = source.source, target
        self.algorithm, self.normalization = target.algorithm, target.normalization
        self.new_tokens = target.new_tokens
        self.notes = tuple(
            f"{name}: {note}" for name, side in self._sides.items() for note in side.notes
        )

    @classmethod
    def parse(cls, text: str, where: str = FILE_NAME) -> "SeparateTokenizer":
        try:
            data = json.loads(text)
            stored_new_tokens(data, where)  # refuses other versions
            source, target = (json.dumps(data[name]) for name in ("source", "target"))
        except (ValueError, LookupError, TypeError, RecursionError):
            raise DataError(f"{where}: is damaged; restore the file") from None
        return cls(JointTokenizer.parse(source, where), JointTokenizer.parse(target, where))

    def to_json(self) -> str:
        sides = {name: json.loads(side.to_json()) for name, side in self._sides.items()}
        data = {"tformer_tokenizer": VERSION, "kind": "separate", **sides}
        return json.dumps(data, ensure_ascii=False) + "\n"

    def side(self, name: SideName) -> JointTokenizer:
        return self._sides[name]  # gives all text back, as the side that reads does not

    def with_new_tokens(self, words: Sequence[str]) -> "SeparateTokenizer":
        longer = (side.with_new_tokens(words).to_json() for side in self._sides.values())
        return SeparateTokenizer(*map(JointTokenizer.parse, longer))
