"""An ablation as JSON Lines: one object with the whole, then one for each head and curve point."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tformer_cli.evaluation.significance import PairedDifference
from tformer_cli.inspection.ablation.record import SCHEMA, Ablation, CurvePoint, HeadEffect, Pruning


def render_ablation(ablation: Ablation) -> Iterator[str]:
    """Yields the lines; each has `schema` and says in `record` what it is."""
    yield _line("ablation", _whole(ablation))
    for effect in ablation.effects:
        yield _line("head", _effect(effect))
    for point in ablation.curve:
        yield _line("curve", _point(point, ablation.loss))


def render_pruning(pruning: Pruning) -> str:
    """Renders what a pruned model costs."""
    record = {
        "directory": pruning.directory,
        "removed": [str(head) for head in pruning.removed],
        "before": asdict(pruning.before),
        "after": asdict(pruning.after),
        "scores": _scores(pruning.scores),
    }
    return _line("pruned", record)


def _whole(ablation: Ablation) -> dict[str, Any]:
    settings = asdict(ablation.settings)
    return {
        "model": ablation.model,
        "lines": ablation.n_lines,
        "tokens": ablation.n_tokens,
        "loss": ablation.loss,
        "scores": {_key(name): value for name, value in ablation.scores.items()},
        "signatures": {_key(name): text for name, text in ablation.signatures.items()},
        "importance": "E |dL/dxi| in nats a target token",
        "granularity": settings["granularity"],
        "rank_by": settings["rank_by"],
        "resamples": settings["n_resamples"],
        "seed": settings["seed"],
    }


def _effect(effect: HeadEffect) -> dict[str, Any]:
    return {
        "id": str(effect.head),
        "kind": effect.head.kind,
        "layer": effect.head.layer,
        "head": effect.head.head,
        "rank": effect.rank,
        "loss_rank": effect.loss_rank,
        **_difference("loss", effect.loss),
        "importance": effect.importance,
        "layer_importance": effect.layer_importance,
        "scores": _scores(effect.scores),
    }


def _point(point: CurvePoint, loss: float) -> dict[str, Any]:
    return {
        "removed": point.n_removed,
        "id": None if point.head is None else str(point.head),
        "loss": point.loss,
        "delta_loss": point.loss - loss,
        "scores": _scores(point.scores),
    }


def _difference(name: str, found: PairedDifference) -> dict[str, Any]:
    return {
        name: found.value,
        f"delta_{name}": found.difference,
        "ci95": [found.low, found.high],
        "p": found.p_value,
    }


def _scores(scores: tuple[PairedDifference, ...]) -> dict[str, Any]:
    return {
        _key(score.name): {
            "score": score.value,
            "delta": score.difference,
            "ci95": [score.low, score.high],
            "p": score.p_value,
        }
        for score in scores
    }


def _key(name: str) -> str:
    """Names "BLEU" bleu and "chrF2" chrf, as `tformer evaluate` does."""
    return name.lower().removesuffix("2")


def _line(record: str, values: dict[str, Any]) -> str:
    whole = {"schema": SCHEMA, "record": record, **values}
    return json.dumps(_rounded(whole), ensure_ascii=False)


def _rounded(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value
