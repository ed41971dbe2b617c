"""COMET (Rei et al. 2020) as a metric of sacreBLEU's kind, by Unbabel's package: an extra."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sacrebleu.metrics.base import Metric, Signature

from tformer_cli.errors import UsageError
from tformer_cli.metrics.choices import COMET_MODEL
from tformer_cli.wording import installing


class Comet(Metric):
    """The mean of a neural metric over sentences, times 100."""

    def __init__(
        self, sources: Sequence[str], model: str = COMET_MODEL, *, on_gpu: bool = False
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sources = list(sources)
        self._gpus = int(on_gpu)
        self._model = _load(model)
        self.model_name = model
        # the model reads a source, a translation and one reference
        self.num_refs = 1
        self.seed = None

    def get_signature(self) -> Signature:
        from importlib.metadata import version

        signature = Signature(vars(self))
        signature.info["model"] = self.model_name
        signature.info["version"] = f"comet-{version('unbabel-comet')}"
        return signature

    def _extract_corpus_statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]] | None
    ) -> list[list[float]]:
        """Computes of each sentence its score and 1: their sums make the mean of any sample."""
        samples = [
            {"src": source, "mt": hypothesis, "ref": reference}
            for source, hypothesis, reference in zip(
                self._sources, hypotheses, (references or [[]])[0], strict=True
            )
        ]
        output = self._model.predict(samples, gpus=self._gpus, progress_bar=False, num_workers=0)
        return [[float(score), 1.0] for score in output.scores]

    def _aggregate_and_compute(self, stats: list[list[float]]) -> SimpleNamespace:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _compute_score_from_stats(self, stats: Sequence[float]) -> SimpleNamespace:
        return SimpleNamespace(name="COMET", score=100.0 * float(stats[0]) / float(stats[1]))

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"refs": refs}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[Any]:
        raise NotImplementedError("a sentence is judged with its source")


def check_installed() -> None:
    if find_spec("comet") is None:
        raise UsageError(
            "--metric: comet needs the package unbabel-comet; install it with "
            f"{installing('comet')}, or omit comet"
        )


def _load(model: str) -> Any:  # noqa: ANN401 - of an optional package
    check_installed()
    from comet import download_model, load_from_checkpoint

    try:
        return load_from_checkpoint(model if Path(model).is_file() else download_model(model))
    except Exception as error:  # noqa: BLE001 - of downloads and of foreign checkpoints
        reason = " ".join(str(error).split())
        raise UsageError(
            f"--comet-model: {model} cannot be loaded ({reason}); download the model once while "
            "online, or give the path of its checkpoint"
        ) from None
