"""Hugging Face's `generate` with the same weights, sentences of like length together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from batches import padded
from hf_copy import hf_copy
from translation import Translate, TranslationJob, measure, read_job, set_up_torch

from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.model.transformer import Transformer
from tformer_cli.text.tokenizer import EOS_ID, PAD_ID, Tokenizer

SENTENCES_PER_BATCH = 64
LARGEST_DIFFERENCE = 1e-3
"""Of a logit; float32 sums in another order differ by some 1e-5."""


def main() -> None:
    job = read_job()
    set_up_torch(job)
    directory = load_model_directory(job.model)
    model = hf_copy(directory.model, job.options.get("attention", "sdpa"))
    check_equal(directory.model, model, directory.tokenizer, job.lines)
    version = f"transformers {transformers.__version__}, torch {torch.__version__}"
    measure(job, lambda: translator(model, directory.tokenizer, job), version, is_load_timed=False)


@torch.inference_mode()
def check_equal(ours: Transformer, theirs: Any, tokenizer: Tokenizer, file: Path) -> None:
    """Compares logits on real sentences, each with itself as its translation."""
    lines = file.read_text(encoding="utf-8").split("\n")[:4]
    source = padded([[*ids, EOS_ID] for ids in tokenizer.encode_batch(lines)])
    mask = source != PAD_ID
    expected = ours(source, mask, source)[mask]
    found = theirs(input_ids=source, attention_mask=mask.long(), decoder_input_ids=source)
    difference = (found.logits[mask] - expected).abs().max().item()
    if not difference < LARGEST_DIFFERENCE:
        raise SystemExit(f"the copied model's logits differ by {difference:g}")


def translator(model: Any, tokenizer: Tokenizer, job: TranslationJob) -> Translate:
    """Makes what translates with a model of the library."""

    @torch.inference_mode()
    def translate(lines: Sequence[str]) -> list[tuple[str, int]]:
        sources = [[*ids, EOS_ID] for ids in tokenizer.encode_batch(lines)]
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        found: dict[int, list[int]] = {}
        for start in range(0, len(order), SENTENCES_PER_BATCH):
            members = order[start : start + SENTENCES_PER_BATCH]
            source = padded([sources[i] for i in members])
            output = model.generate(
                input_ids=source,
                attention_mask=(source != PAD_ID).long(),
                num_beams=job.beam_size,
                length_penalty=job.length_penalty,
                do_sample=False,
                max_new_tokens=job.max_length + 1,  # the end of sentence counts here
            )
            rows = ([token for token in row if token > EOS_ID] for row in output.tolist())
            found.update(zip(members, rows, strict=True))
        texts = tokenizer.decode_batch([found[i] for i in range(len(sources))])
        return [(text, len(found[i]) + 1) for i, text in enumerate(texts)]

    return translate


if __name__ == "__main__":
    main()
