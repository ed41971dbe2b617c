"""Marian's decoder, in the process, by the configuration of a model for it."""

from importlib.metadata import version

from pymarian import Translator
from translation import measure, read_job


def main():
    job = read_job()

    def load():
        words = ["--config", job.options["config"], "--cpu-threads", str(job.threads), "--quiet"]
        engine = Translator(" ".join(words))

        def translate(lines):
            found = engine.translate(list(lines))
            return [(text, len(text.split())) for text in found]

        return translate

    measure(job, load, f"Marian {version('pymarian')}")


if __name__ == "__main__":
    main()
