"""The logits of an imported model beside those of torch's own layers."""

import torch

from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.foreign.import_model import import_model

LENGTHS = (1, 7, 300, 20)
"""Source tokens of the sentences of a batch."""
N_TARGETS = 9


def logits_differ(path, oracle, pieces, start, output):
    """Imports a model and compares it with a `TorchTranslation`.

    Args:
        path: the foreign model.
        oracle: the same weights in torch.
        pieces: the foreign vocabularies of source and target.
        start: foreign id that a translation begins with.
        output: model directory to write.

    Returns:
        Largest difference of the logits, padding in the batch included.
    """
    import_model(str(path), output)
    ours = load_model_directory(output)
    sides = ours.tokenizer.source, ours.tokenizer.target
    places = [
        _places(side.vocabulary.pieces, known) for side, known in zip(sides, pieces, strict=True)
    ]
    torch.manual_seed(3)
    n, longest = len(LENGTHS), max(LENGTHS)
    mask = torch.arange(longest) < torch.tensor(LENGTHS)[:, None]
    source = torch.randint(len(places[0]), (n, longest)) * mask
    target = torch.randint(len(places[1]), (n, N_TARGETS))
    source_ids, target_ids = (torch.tensor(places[side]) for side in (0, 1))
    with torch.no_grad():
        wanted = oracle(
            source_ids[source, 1],
            mask,
            torch.cat([torch.full((n, 1), start), target_ids[target, 1]], dim=1),
        )
        found = ours.model(
            torch.where(mask, source_ids[source, 0], 0),
            mask,
            torch.cat([torch.full((n, 1), 2), target_ids[target, 0]], dim=1),
        )
    rows = target_ids.T
    return (found[..., rows[0]] - wanted[..., rows[1]]).abs().max().item()


def _places(ours, theirs):
    """The id of each ordinary piece here and there."""
    known = {piece: number for number, piece in enumerate(theirs)}
    skipped = ("<pad>", "<s>")  # never written; another row may stand for them
    found = [
        (number, known[piece])
        for number, piece in enumerate(ours)
        if piece in known and piece not in skipped
    ]
    assert len(found) > len(theirs) - 5
    return found
