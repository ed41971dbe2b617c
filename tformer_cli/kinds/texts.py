"""Training on running text: each line, or a stream of all lines cut into blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tformer_cli.kinds.kind import Training, with_fields
from tformer_cli.text.fields import with_text_field
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tformer_cli.kinds.kind import Progress
    from tformer_cli.recipe import Recipe
    from tformer_cli.text.corpora import SentencePair
    from tformer_cli.text.tokenizer import Tokenizer


class TextModeling(Training):
    """Texts, each the target of an example with an empty source."""

    def complete_recipe(self, recipe: Recipe, progress: Progress | None) -> Recipe:  # noqa: ARG002 - nothing is read
        return with_fields(recipe, with_text_field)

    def texts(self, pair: SentencePair) -> Iterable[str]:
        """Returns the text; line ends are tokens of a stream."""
        from tformer_cli.text.blocks import join_lines

        return (join_lines([pair.target]),)


def text_ids(
    lines: Sequence[str], tokenizer: Tokenizer, longest: int, *, is_stream: bool
) -> list[Sequence[int]]:
    """The ids of lines, cut off where they are too long, or of blocks of one stream."""
    from tformer_cli.text.blocks import TextStream

    if is_stream:
        stream = TextStream(tokenizer.target, longest)
        blocks = [*stream.add(lines), stream.rest()]
    else:
        blocks = tokenizer.target.encode_batch([line for line in lines if not is_blank(line)])
    return [ids[:longest] for ids in blocks if ids]
