"""A library on PyTorch with the same weights, sentences of like length together."""

import math
from importlib.metadata import version
from types import SimpleNamespace

import torch
from torch.nn.utils.rnn import pad_sequence
from translation import batches_of_like_length, measure, read_job, set_up_torch

from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID

TOKENS_PER_BATCH = 2048
"""Source tokens with padding."""
SENTENCES_PER_BATCH = 64
"""Of Hugging Face's; on a GPU four times as many."""
LARGEST_DIFFERENCE = 1e-4
"""Of a log-probability; sums of float32 in another order differ by some 1e-5."""


def main():
    job = read_job()
    set_up_torch(job)
    directory = load_model_directory(job.model)
    name = job.options["library"]
    library = {"hf": hugging_face, "fairseq": fairseq, "eole": eole}[name]
    log_probabilities, search = library(directory, job)
    check_equal(directory, job.lines, log_probabilities)
    package = {"hf": "transformers"}.get(name, name)
    versions = f"{package} {version(package)}, torch {torch.__version__}"
    tokenizer, is_hf = directory.tokenizer, name == "hf"
    device = job.options.get("device", "cpu")
    measure(
        job, lambda: translator(tokenizer, search, is_hf, device), versions, is_load_timed=False
    )


def pad_rows(rows):
    return pad_sequence(list(rows), batch_first=True, padding_value=PAD_ID)


@torch.inference_mode()
def check_equal(directory, file, log_probabilities):
    """Compares log-probabilities on real sentences, each with itself as its translation."""
    lines = file.read_text(encoding="utf-8").split("\n")[:8]
    source = pad_rows(
        torch.tensor([*ids, EOS_ID]) for ids in directory.tokenizer.encode_batch(lines)
    )
    target = torch.cat((torch.full_like(source[:, :1], BOS_ID), source[:, :-1]), dim=1)
    mask = source != PAD_ID
    expected = directory.model(source, mask, target).log_softmax(-1)[mask]
    difference = (log_probabilities(source, mask, target)[mask] - expected).abs().max().item()
    if not difference <= LARGEST_DIFFERENCE:
        raise SystemExit(f"the copied model's log-probabilities differ by {difference:g}")


def translator(tokenizer, search, is_hf, device):
    """Makes what translates lines, by a search that gets rows of source ids with their end."""

    @torch.inference_mode()
    def translate(lines):
        rows = [torch.tensor([*ids, EOS_ID]) for ids in tokenizer.encode_batch(list(lines))]
        lengths = list(map(len, rows))
        if is_hf:
            order = sorted(range(len(rows)), key=lambda i: lengths[i])
            size = SENTENCES_PER_BATCH if device == "cpu" else 4 * SENTENCES_PER_BATCH
            batches = [order[start : start + size] for start in range(0, len(order), size)]
        else:
            batches = batches_of_like_length(lengths, TOKENS_PER_BATCH)
        found = {}
        for members in batches:
            found.update(zip(members, search([rows[i] for i in members]), strict=True))
        texts = tokenizer.decode_batch([found[i] for i in range(len(rows))])
        return [(text, len(found[i]) + 1) for i, text in enumerate(texts)]  # and the end

    return translate


def pieces_of(ids):
    """Without special tokens."""
    return [token for token in ids if token > EOS_ID]


def hugging_face(directory, job):
    from copies import hf_copy

    model = hf_copy(directory.model, job.options.get("attention", "sdpa"))

    def log_probabilities(source, mask, target):
        given = {"attention_mask": mask.long(), "decoder_input_ids": target}
        return model(input_ids=source, **given).logits.log_softmax(-1)

    device, precision = job.options.get("device", "cpu"), job.options.get("precision", "float32")

    def search(rows):
        source = pad_rows(rows).to(device)
        # Only now: its results were compared before on the CPU in float32
        output = model.to(device, getattr(torch, precision)).generate(
            input_ids=source,
            attention_mask=(source != PAD_ID).long(),
            num_beams=job.beam_size,
            length_penalty=job.length_penalty,
            do_sample=False,
            max_new_tokens=job.max_length + 1,  # the end of sentence counts here
        )
        return map(pieces_of, output.tolist())

    return log_probabilities, search


def fairseq(directory, job):
    from copies import fairseq_copy
    from fairseq.data.data_utils import collate_tokens
    from fairseq.sequence_generator import SequenceGenerator

    model, dictionary, to_theirs, to_ours = fairseq_copy(directory.model)
    generator = SequenceGenerator(
        [model], dictionary, beam_size=job.beam_size, max_len_b=job.max_length, min_len=0,
        len_penalty=job.length_penalty, unk_penalty=math.inf,
        tokens_to_suppress=(dictionary.bos_word,),
    )  # fmt: skip

    def log_probabilities(source, mask, target):
        found = model(to_theirs[source], mask.sum(1), to_theirs[target])
        return model.get_normalized_probs(found, log_probs=True)[..., to_theirs]

    def search(rows):
        source = collate_tokens([to_theirs[row] for row in rows], dictionary.pad(), left_pad=True)
        lengths = torch.tensor(list(map(len, rows)))
        net_input = {"src_tokens": source, "src_lengths": lengths}
        output = generator.generate([], {"net_input": net_input}, bos_token=dictionary.bos())
        # the last token is the end of the sentence
        return [to_ours[hypotheses[0]["tokens"]].tolist()[:-1] for hypotheses in output]

    return log_probabilities, search


class Vocabulary(dict):
    """What Eole asks of a vocabulary."""

    def lookup_token(self, token):
        return self.get(token, UNK_ID)


def eole(directory, job):
    from copies import eole_copy
    from eole.predict import GNMTGlobalScorer, Translator

    model, tokenizer = eole_copy(directory.model), directory.tokenizer
    names = tokenizer.pieces(range(tokenizer.vocab_size))
    vocabulary = Vocabulary(zip(names, range(len(names)), strict=True))
    special = dict(zip(("pad_token", "unk_token", "bos_token", "eos_token"), names, strict=False))
    engine = Translator(
        model,
        {
            "src": vocabulary, "tgt": vocabulary, "specials": special,
            "decoder_start_token": names[BOS_ID],
        },
        eole_settings(job),
        SimpleNamespace(add_estimator=False, estimator_type="average", encoder=None),
        device_id=-1,
        global_scorer=GNMTGlobalScorer(job.length_penalty, 0.0, "avg", "none"),
        report_score=False,
    )  # fmt: skip

    def log_probabilities(source, mask, target):
        padding = (~mask).unsqueeze(1)
        memory, _ = model.encoder(model.src_emb(source), pad_mask=padding)
        model.decoder.init_state(enc_out=memory)
        hidden, _ = model.decoder(
            model.tgt_emb(target), enc_out=memory, src_pad_mask=padding,
            tgt_pad_mask=target.eq(PAD_ID).unsqueeze(1),
        )  # fmt: skip
        return model.generator(hidden).log_softmax(-1)

    def search(rows):
        batch = {"src": pad_rows(rows), "srclen": torch.tensor(list(map(len, rows)))}
        predictions = engine.predict_batch(batch, attn_debug=False)["predictions"]
        return [pieces_of(hypotheses[0].tolist()) for hypotheses in predictions]

    return log_probabilities, search


def eole_settings(job):
    """What Eole's command would make of its options."""
    is_greedy = job.beam_size == 1
    return SimpleNamespace(
        transforms=[], fuse_kvq=True, fuse_gate=False, optional_eos=[], dynamic_shapes=None,
        n_best=1,
        max_length=job.max_length + 1,  # the end of sentence counts here
        max_length_ratio=0, context_length=0, beam_size=job.beam_size, temperature=1.0,
        top_k=1 if is_greedy else 0,  # Eole's greedy search; without it a beam of 1
        top_p=0.0, min_length=0, ban_unk_token=True, ratio=-0.0, stepwise_penalty=False,
        dump_beam="", block_ngram_repeat=0, ignore_when_blocking=[], replace_unk=False,
        tgt_file_prefix=False, phrase_table="", data_type="text", verbose=False, report_time=False,
        report_align=False, gold_align=False, seed=-1, with_score=False, estim_only=False,
        self_attn_backend="pytorch",
    )  # fmt: skip


if __name__ == "__main__":
    main()
