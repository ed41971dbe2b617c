"""The searches of Hugging Face's library beside those of imported models of T5's family.

Beams are wider than the vocabulary, so that both searches see every translation of two tokens. The
library is kept from writing padding and ids without a piece, and what has `<unk>` is left out, for
tformer writes none.
"""

import pytest
import torch

from tests.foreign.t5.test_importing import N_SENTINELS, SIZE, T5_PIECES, both
from tformer_cli.kinds.lines.translate import translate_lines

TEXTS = ["a cat", "the old house is green", "no", "z z z z q", "h e l p to: i t"]
N_TOKENS, WIDE = 2, 64


def generate_ids(model, imported, ours, text, *, never=(), **options):
    """What the library writes behind the start: ids and scores of each, best first."""
    never = [0, *never, *range(len(T5_PIECES) + N_SENTINELS, SIZE)]
    source = [imported.ids[n] for n in (*ours.tokenizer.source.encode(text), 3)]
    output = model.generate(
        torch.tensor([source]),
        suppress_tokens=never,
        renormalize_logits=True,
        max_length=None,
        use_cache=False,  # which fails in 5.23 where the decoder is deeper than the encoder
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    return output.sequences[:, 1:].tolist(), output.get("sequences_scores")


@pytest.mark.parametrize("variant", ["t5", "1.1", "mt5"])
def test_greedy_ids_are_those_of_the_library(tmp_path, variant):
    model, found, ours = both(tmp_path, variant, layer_norm_epsilon=0.1)
    translations = list(translate_lines(tmp_path / "ours", TEXTS, beam_size=1, max_length=12))
    for text, translation in zip(TEXTS, translations, strict=True):
        ((ids,), _) = generate_ids(
            model, found, ours, text, max_new_tokens=13, num_beams=1, never=[2]
        )
        ids = ids[: ids.index(1)] if 1 in ids else ids[:12]
        assert [found.ids[n] for n in translation.hypotheses[0].token_ids] == ids
    assert len({translation.text for translation in translations}) >= 3


@pytest.mark.parametrize("variant", ["t5", "1.1"])
def test_the_best_translation_is_that_of_the_library(tmp_path, variant):
    model, found, ours = both(tmp_path, variant)
    settings = {
        "beam_size": WIDE,
        "max_length": N_TOKENS,
        "length_penalty": 0.0,
        "length_normalization": "gnmt",
    }
    n_compared = 0
    for text, translation in zip(
        TEXTS, translate_lines(tmp_path / "ours", TEXTS, **settings), strict=True
    ):
        rows, scores = generate_ids(
            model,
            found,
            ours,
            text,
            max_new_tokens=N_TOKENS + 1,
            num_beams=WIDE,
            num_return_sequences=WIDE,
            length_penalty=0.0,
            early_stopping=False,
        )
        ended = [
            (row[: row.index(1)], score)
            for row, score in zip(rows, scores.tolist(), strict=True)
            if 1 in row and 2 not in row
        ]
        best = translation.hypotheses[0]
        logs = best.token_log_probabilities
        assert sum(logs) >= max(score for _, score in ended) - 1e-4
        ids, score = max(
            ((row, score) for row, score in ended if len(row) <= N_TOKENS), key=lambda pair: pair[1]
        )
        if best.is_finished:
            assert [found.ids[n] for n in best.token_ids] == ids
            assert sum(logs) == pytest.approx(score, abs=1e-4)
            n_compared += 1
    assert n_compared >= 2
