"""tformer's own engine."""

from collections.abc import Sequence
from importlib.metadata import version as version_of

from translation import Translate, measure, read_job

from tformer_cli import __version__
from tformer_cli.fast.native.library import KernelsUnavailable, load_library
from tformer_cli.kinds.opening import open_model


def main() -> None:
    job = read_job()

    def load() -> Translate:
        translator = open_model(
            job.model,
            device="cpu",
            precision=job.options["precision"],
            threads=job.threads,
            beam_size=job.beam_size,
            length_normalization=job.length_normalization,
            length_penalty=job.length_penalty,
            min_length=job.min_length,
            max_length=job.max_length,
        ).translator

        def translate(lines: Sequence[str]) -> list[tuple[str, int]]:
            return [
                (found.text, len(found.hypotheses[0].token_ids) + max(found.n_parts, 1))
                for found in translator.translate(lines)
            ]

        return translate

    version = f"tformer {__version__}, torch {version_of('torch')}"
    if job.options["precision"] == "float32":
        version += f", {kernels()}"
    measure(job, load, version)


def kernels() -> str:
    """Names what computes."""
    try:
        load_library()
    except KernelsUnavailable as error:
        return f"without compiled kernels: {error}"
    return "compiled kernels"


if __name__ == "__main__":
    main()
