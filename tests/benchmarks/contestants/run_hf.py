"""Hugging Face transformers: MarianMTModel from a configuration, in a plain loop."""

import torch
import transformers
from batches import BOS, EOS, PAD, padded
from job import read_ids, read_job, write_answer, write_ids
from loop import prepare_torch, train
from safetensors.torch import load_model, save_model
from transformers import MarianConfig, MarianMTModel


def main():
    job = read_job()
    prepare_torch(job)
    model = build(job)
    curve = []

    def save(stopwatch):
        file = job.scratch / f"update-{len(stopwatch.updates)}.safetensors"
        save_model(model, str(file))
        curve.append((stopwatch.seconds, len(stopwatch.updates), file))

    def forward(batch):
        return model(
            input_ids=batch.source,
            attention_mask=batch.source != PAD,
            decoder_input_ids=batch.target_input,
            use_cache=False,
        ).logits

    stopwatch = train(job, model, forward, save)
    points = []
    for seconds, n_updates, file in curve:
        load_model(model, str(file))
        hypotheses = file.with_suffix(".valid")
        write_ids(hypotheses, translate(model, read_ids(job.ids / "valid.source")))
        points.append({"seconds": seconds, "updates": n_updates, "valid": str(hypotheses)})
    if points:
        write_ids(job.scratch / "test", translate(model, read_ids(job.ids / "test.source")))
        points[-1]["test"] = str(job.scratch / "test")
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    write_answer(job, updates=stopwatch.updates, curve=points, version=versions)


def build(job):
    config = MarianConfig(
        vocab_size=job.vocab_size, d_model=job.d_model, encoder_layers=job.n_layers,
        decoder_layers=job.n_layers, encoder_attention_heads=job.n_heads,
        decoder_attention_heads=job.n_heads, encoder_ffn_dim=job.d_ff, decoder_ffn_dim=job.d_ff,
        activation_function="relu", dropout=0.1, attention_dropout=0.0, activation_dropout=0.0,
        max_position_embeddings=512, scale_embedding=True, share_encoder_decoder_embeddings=True,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )  # fmt: skip
    if "attention" in job.options:
        config._attn_implementation = job.options["attention"]
    return MarianMTModel(config)


@torch.inference_mode()
def translate(model, sources):
    """Beam 5, sentences of like length together."""
    model.eval()
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    found = {}
    for start in range(0, len(order), 64):
        members = order[start : start + 64]
        source = padded([[*sources[i], EOS] for i in members])
        output = model.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            num_beams=5,
            max_new_tokens=min(256, 2 * source.shape[1] + 10),
        )
        rows = ([token for token in row if token > EOS] for row in output.tolist())
        found.update(zip(members, rows, strict=True))
    return [found[i] for i in range(len(sources))]


if __name__ == "__main__":
    main()
