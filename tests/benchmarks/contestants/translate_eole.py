"""Eole's `Translator` with the same weights, sentences of like length together."""

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from eole.predict import GNMTGlobalScorer, Translator
from eole_copy import eole_copy
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
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer

TOKENS_PER_BATCH = 2048
"""Source tokens with padding."""
LARGEST_DIFFERENCE = 1e-4
"""Of a log-probability."""


class Vocabulary(dict[str, int]):
    """What Eole asks of a vocabulary."""

    def lookup_token(self, token: str) -> int:
        return self.get(token, UNK_ID)


def main() -> None:
    job = read_job()
    set_up_torch(job)
    directory = load_model_directory(job.model)
    model = eole_copy(directory.model)
    check_equal(directory.model, model, directory.tokenizer, job.lines)
    version = f"Eole {importlib.metadata.version('eole')}, torch {torch.__version__}"
    measure(job, lambda: translator(model, directory.tokenizer, job), version, is_load_timed=False)


@torch.inference_mode()
def check_equal(ours: Transformer, theirs: Any, tokenizer: Tokenizer, file: Path) -> None:
    """Compares log-probabilities on real sentences, each with itself as its translation."""
    lines = file.read_text(encoding="utf-8").split("\n")[:8]
    ids = [torch.tensor([*row, EOS_ID]) for row in tokenizer.encode_batch(lines)]
    source = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=PAD_ID)
    target = torch.cat((torch.full_like(source[:, :1], BOS_ID), source[:, :-1]), dim=1)
    mask = source != PAD_ID
    expected = ours(source, mask, target).log_softmax(-1)[mask]
    padding = (~mask).unsqueeze(1)
    memory, _ = theirs.encoder(theirs.src_emb(source), pad_mask=padding)
    theirs.decoder.init_state(enc_out=memory)
    hidden, _ = theirs.decoder(
        theirs.tgt_emb(target),
        enc_out=memory,
        src_pad_mask=padding,
        tgt_pad_mask=target.eq(PAD_ID).unsqueeze(1),
    )
    found = theirs.generator(hidden).log_softmax(-1)[mask]
    difference = (found - expected).abs().max().item()
    if not difference <= LARGEST_DIFFERENCE:
        raise SystemExit(f"the copied model's log-probabilities differ by {difference:g}")


def translator(model: Any, tokenizer: Tokenizer, job: TranslationJob) -> Translate:
    """Makes what translates with a model of the library."""
    names = tokenizer.pieces(range(tokenizer.vocab_size))
    vocabulary = Vocabulary(zip(names, range(len(names)), strict=True))
    special = dict(zip(("pad_token", "unk_token", "bos_token", "eos_token"), names, strict=False))
    engine = Translator(
        model,
        {
            "src": vocabulary,
            "tgt": vocabulary,
            "specials": special,
            "decoder_start_token": names[BOS_ID],
        },
        settings(job),
        SimpleNamespace(add_estimator=False, estimator_type="average", encoder=None),
        device_id=-1,
        global_scorer=GNMTGlobalScorer(job.length_penalty, 0.0, "avg", "none"),
        report_score=False,
    )

    @torch.inference_mode()
    def translate(lines: Sequence[str]) -> list[tuple[str, int]]:
        sources = [torch.tensor([*ids, EOS_ID]) for ids in tokenizer.encode_batch(list(lines))]
        found: dict[int, list[int]] = {}
        for members in batches_of_like_length(list(map(len, sources)), TOKENS_PER_BATCH):
            rows = [sources[i] for i in members]
            batch = {
                "src": torch.nn.utils.rnn.pad_sequence(
                    rows, batch_first=True, padding_value=PAD_ID
                ),
                "srclen": torch.tensor(list(map(len, rows))),
            }
            predictions = engine.predict_batch(batch, attn_debug=False)["predictions"]
            best = ([token for token in one[0].tolist() if token > EOS_ID] for one in predictions)
            found.update(zip(members, best, strict=True))
        texts = tokenizer.decode_batch([found[i] for i in range(len(sources))])
        return [(text, len(found[i]) + 1) for i, text in enumerate(texts)]

    return translate


def settings(job: TranslationJob) -> SimpleNamespace:
    """What Eole's command would make of its options."""
    is_greedy = job.beam_size == 1
    return SimpleNamespace(
        transforms=[],
        fuse_kvq=True,
        fuse_gate=False,
        optional_eos=[],
        dynamic_shapes=None,
        n_best=1,
        max_length=job.max_length + 1,  # the end of sentence counts here
        max_length_ratio=0,
        context_length=0,
        beam_size=job.beam_size,
        temperature=1.0,
        top_k=1 if is_greedy else 0,  # Eole's greedy search; without it a beam of 1
        top_p=0.0,
        min_length=0,
        ban_unk_token=True,
        ratio=-0.0,
        stepwise_penalty=False,
        dump_beam="",
        block_ngram_repeat=0,
        ignore_when_blocking=[],
        replace_unk=False,
        tgt_file_prefix=False,
        phrase_table="",
        data_type="text",
        verbose=False,
        report_time=False,
        report_align=False,
        gold_align=False,
        seed=-1,
        with_score=False,
        estim_only=False,
        self_attn_backend="pytorch",
    )


if __name__ == "__main__":
    main()
