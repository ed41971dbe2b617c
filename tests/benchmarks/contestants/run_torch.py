"""torch.nn.Transformer in a plain loop."""

import math

import torch
from batches import PAD
from job import read_job, write_answer
from loop import prepare_torch, train
from torch import nn

LONGEST = 512


class Translator(nn.Module):
    """torch's layers, with one matrix for both embeddings and the output."""

    def __init__(self, n_layers, d_model, n_heads, d_ff, vocab_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.layers = nn.Transformer(
            d_model, n_heads, n_layers, n_layers, d_ff, dropout=0.1, batch_first=True
        )
        self.dropout = nn.Dropout(0.1)
        angles = torch.arange(LONGEST)[:, None] * torch.exp(
            torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model)
        )
        waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        self.register_buffer("positions", waves, persistent=False)

    def forward(self, source, target):
        """(B, S) and (B, T) ids to (B, T, V) logits."""
        length = target.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        output = self.layers(
            self._embed(source),
            self._embed(target),
            tgt_mask=future,
            src_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_is_causal=True,
        )
        return output @ self.embedding.weight.T

    def _embed(self, ids):
        scale = math.sqrt(self.embedding.embedding_dim)
        return self.dropout(self.embedding(ids) * scale + self.positions[: ids.shape[1]])


def main():
    job = read_job()
    if job.minutes:
        raise SystemExit("torch: measures speed only")
    prepare_torch(job)
    model = Translator(job.n_layers, job.d_model, job.n_heads, job.d_ff, job.vocab_size)
    if "compile" in job.options:
        for layer in (*model.layers.encoder.layers, *model.layers.decoder.layers):
            layer.compile(dynamic=True)

    def forward(batch):
        return model(batch.source, batch.target_input)

    stopwatch = train(job, model, forward, save=lambda _: None)
    write_answer(job, updates=stopwatch.updates, curve=[], version=f"torch {torch.__version__}")


if __name__ == "__main__":
    main()
