"""The CTranslate2 engine alone, on tformer's export, with its own batching."""

import ctranslate2
from translation import measure, read_job

from tformer_cli.text.tokenizer import EOS_ID, read_tokenizer

SENTENCES_PER_BATCH = 64


def main():
    job = read_job()
    n_workers = int(job.options["workers"])

    def load():
        tokenizer = read_tokenizer(job.model / "tokenizer.json")
        engine = ctranslate2.Translator(
            str(job.export),
            device="cpu",
            compute_type=job.options["precision"],
            inter_threads=n_workers,
            intra_threads=max(1, job.threads // n_workers),
        )
        names = tokenizer.pieces(range(tokenizer.vocab_size))
        ids = {name: token for token, name in enumerate(names)}

        def translate(lines):
            results = engine.translate_batch(
                [[names[token] for token in source] for source in tokenizer.encode_batch(lines)],
                max_batch_size=SENTENCES_PER_BATCH,
                beam_size=job.beam_size,
                length_penalty=job.length_penalty,
                max_input_length=0,
                min_decoding_length=job.min_length,
                max_decoding_length=job.max_length + 1,  # the end of sentence counts here
                suppress_sequences=[[name] for name in names[:EOS_ID]],
            )
            found = [[ids[name] for name in result.hypotheses[0]] for result in results]
            texts = tokenizer.decode_batch(found)
            return [(text, len(part) + 1) for text, part in zip(texts, found, strict=True)]

        return translate

    measure(job, load, f"CTranslate2 {ctranslate2.__version__}")


if __name__ == "__main__":
    main()
