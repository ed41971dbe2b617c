"""Marian's decoder, in the process, by the configuration of a model for it."""

from collections.abc import Sequence
from importlib.metadata import version

from pymarian import Translator
from translation import Translate, measure, read_job


def main() -> None:
    job = read_job()

    def load() -> Translate:
        words = ["--config", job.options["config"], "--cpu-threads", str(job.threads), "--quiet"]
        engine = Translator(" ".join(words))

        def translate(lines: Sequence[str]) -> list[tuple[str, int]]:
            found = engine.translate(list(lines))
            return [(text, len(text.split())) for text in found]

        return translate

    measure(job, load, f"Marian {version('pymarian')}")


if __name__ == "__main__":
    main()
