"""fairseq's `SequenceGenerator` with the same weights, sentences of like length together."""

import math
from collections.abc import Sequence
from pathlib import Path

import fairseq
import torch
from fairseq.data.data_utils import collate_tokens
from fairseq.sequence_generator import SequenceGenerator
from fairseq_copy import FairseqCopy, fairseq_copy
from torch import Tensor
from translation import (
    Translate,
    TranslationJob,
    batches_of_like_length,
    measure,
    read_job,
    set_up_torch,
)

from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.model.transformer import Transformer
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer

TOKENS_PER_BATCH = 2048
"""Source tokens with padding."""
LARGEST_DIFFERENCE = 1e-4
"""Of a log-probability."""


def main() -> None:
    job = read_job()
    set_up_torch(job)
    directory = load_model_directory(job.model)
    copy = fairseq_copy(directory.model)
    check_equal(directory.model, copy, directory.tokenizer, job.lines)
    version = f"fairseq {fairseq.__version__}, torch {torch.__version__}"
    measure(job, lambda: translator(copy, directory.tokenizer, job), version, is_load_timed=False)


@torch.inference_mode()
def check_equal(ours: Transformer, copy: FairseqCopy, tokenizer: Tokenizer, file: Path) -> None:
    """Compares log-probabilities on real sentences, each with itself as its translation."""
    lines = file.read_text(encoding="utf-8").split("\n")[:8]
    ids = [torch.tensor([*row, EOS_ID]) for row in tokenizer.encode_batch(lines)]
    source = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=PAD_ID)
    target = torch.cat((torch.full_like(source[:, :1], BOS_ID), source[:, :-1]), dim=1)
    mask = source != PAD_ID
    expected = ours(source, mask, target).log_softmax(-1)[mask]
    found = copy.model(copy.to_theirs[source], mask.sum(1), copy.to_theirs[target])
    probabilities = copy.model.get_normalized_probs(found, log_probs=True)
    difference = (probabilities[..., copy.to_theirs][mask] - expected).abs().max().item()
    if not difference <= LARGEST_DIFFERENCE:
        raise SystemExit(f"the copied model's log-probabilities differ by {difference:g}")


def translator(copy: FairseqCopy, tokenizer: Tokenizer, job: TranslationJob) -> Translate:
    """Makes what translates with a model of the library."""
    generator = SequenceGenerator(
        [copy.model],
        copy.dictionary,
        beam_size=job.beam_size,
        max_len_b=job.max_length,
        min_len=0,
        len_penalty=job.length_penalty,
        unk_penalty=math.inf,
        tokens_to_suppress=(copy.dictionary.bos_word,),
    )

    @torch.inference_mode()
    def translate(lines: Sequence[str]) -> list[tuple[str, int]]:
        sources = [copy.to_theirs[[*ids, EOS_ID]] for ids in tokenizer.encode_batch(list(lines))]
        found: dict[int, Tensor] = {}
        for members in batches_of_like_length(list(map(len, sources)), TOKENS_PER_BATCH):
            source = collate_tokens(
                [sources[i] for i in members], copy.dictionary.pad(), left_pad=True
            )
            lengths = torch.tensor([len(sources[i]) for i in members])
            net_input = {"src_tokens": source, "src_lengths": lengths}
            start = copy.dictionary.bos()
            output = generator.generate([], {"net_input": net_input}, bos_token=start)
            best = (hypotheses[0]["tokens"] for hypotheses in output)
            found.update(zip(members, best, strict=True))
        rows = [copy.to_ours[found[i]].tolist() for i in range(len(sources))]
        texts = tokenizer.decode_batch([row[:-1] for row in rows])  # without the end of sentence
        return [(text, len(row)) for text, row in zip(texts, rows, strict=True)]

    return translate


if __name__ == "__main__":
    main()
