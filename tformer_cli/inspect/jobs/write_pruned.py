"""Writing a model directory with fewer heads, and what that saves and costs."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from tformer_cli.artifacts.config_file import WEIGHTS
from tformer_cli.artifacts.model_directory import (
    ModelDirectory,
    load_model_directory,
    save_model_directory,
)
from tformer_cli.artifacts.shortlist_file import copy_shortlist
from tformer_cli.errors import UsageError
from tformer_cli.evaluate.evaluate import reference_loss
from tformer_cli.files.atomic import check_free, directory_aside
from tformer_cli.heads.names import HeadId, head_layout
from tformer_cli.inspect.ablation.pruning import prune_heads
from tformer_cli.inspect.ablation.record import ModelCost, Pruning
from tformer_cli.inspect.views.ablation import AblationSettings
from tformer_cli.kinds.opening.translator import Opened, open_translator
from tformer_cli.metrics.significance import PairedScores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

WARM_UP_LINES = 16


def write_pruned(
    opened: Opened,
    heads: Sequence[HeadId],
    directory: Path,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    settings: AblationSettings | None = None,
    observe: Callable[[str, int, int], None] | None = None,
) -> Pruning:
    """Writes a model without some heads and measures both on a text."""
    check_free(directory, "--write-pruned")
    if not opened.directory.model.config.projections:
        raise UsageError(
            "--write-pruned: the model's heads have no projections, so that there is nothing to "
            "take out; omit it"
        )
    chosen = AblationSettings() if settings is None else settings
    _save(opened.directory, heads, directory)
    pruned = _opened_like(opened, directory)
    models = [opened, pruned]
    for model in models:
        model.translator.translate(sources[:WARM_UP_LINES])
    names = ("translating with all heads", "translating with the remaining heads")
    timed = [
        _translate(model, sources, name, observe) for model, name in zip(models, names, strict=True)
    ]
    paired = PairedScores(timed[0][0], references, n_resamples=chosen.n_resamples, seed=chosen.seed)
    differences = paired.compare(timed[1][0])
    after_scores = {difference.name: difference.value for difference in differences}
    costs = [
        ModelCost(
            n_heads=len(list(head_layout(model.directory.model))),
            n_parameters=sum(part.numel() for part in model.directory.model.parameters()),
            n_bytes=(model.directory.path / WEIGHTS).stat().st_size,
            lines_per_second=len(sources) / seconds,
            loss=reference_loss(model, sources, references[0]),
            scores=scores,
        )
        for model, (_, seconds), scores in zip(
            models, timed, (paired.baseline, after_scores), strict=True
        )
    ]
    return Pruning(
        directory=str(directory),
        removed=tuple(heads),
        before=costs[0],
        after=costs[1],
        scores=tuple(differences),
    )


def _save(whole: ModelDirectory, heads: Sequence[HeadId], directory: Path) -> None:
    pruned = prune_heads(whole.model, heads)
    with directory_aside(directory) as aside:
        save_model_directory(
            aside,
            pruned.state_dict(),
            config=pruned.config,
            tokenizer=whole.tokenizer,
            decoding=whole.decoding,
            # Scores were the whole model's, and heads to align with have other numbers now.
            info=replace(whole.info, scores={}, alignment=None),
        )
        copy_shortlist(whole.path, aside)


def _opened_like(opened: Opened, directory: Path) -> Opened:
    config = opened.translator.config
    return open_translator(
        load_model_directory(directory, opened.device),
        precision=opened.precision,
        beam_size=config.beam_size,
        length_penalty=config.length_penalty,
        n_best=config.n_best,
        batch_tokens=config.batch_tokens,
    )


def _translate(
    opened: Opened,
    sources: Sequence[str],
    what: str,
    observe: Callable[[str, int, int], None] | None,
) -> tuple[list[str], float]:
    texts: list[str] = []
    start = perf_counter()
    for translation in opened.translator.stream(sources):
        texts.append(translation.text)
        if observe is not None:
            observe(what, len(texts), len(sources))
    return texts, perf_counter() - start
