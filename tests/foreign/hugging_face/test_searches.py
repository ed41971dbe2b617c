"""The searches of Hugging Face's library beside those of imported models.

Beams are as wide as the vocabulary, so that both searches see every translation of two tokens. The
library compares with more, those that it had to cut off among them; these are left out. It is kept
from writing `<unk>` and padding, as tformer never does: by their bias or, where probabilities are
not renormalized, by rule.
"""

import pytest
import torch

from tests.foreign.hugging_face.test_importing import marian, multilingual
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.foreign.hugging_face.generation import SAMPLED
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.search.config import NEED_SAMPLING
from tformer_cli.search.scoring import score_pairs

transformers = pytest.importorskip("transformers")

TEXTS = ["a cat", "the old house is green", "no", "z z z z q"]
N_TOKENS = 2
WIDE = 64
"""More than the models have tokens."""
AVERAGE = {"length_normalization": "average", "length_penalty": 1.0}
SUM = {"length_normalization": "gnmt", "length_penalty": 0.0}
CLOSE = 1e-4


def generate_ended(model, source, prompt, penalty, beams, n_tokens):
    """Ended translations of the library: ids behind the prompt and its score, best first."""
    end = model.config.eos_token_id
    output = model.generate(
        torch.tensor([source]),
        decoder_input_ids=torch.tensor([prompt]),
        num_beams=beams,
        num_return_sequences=beams,
        max_new_tokens=n_tokens + 1,
        max_length=None,
        length_penalty=penalty,
        early_stopping=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    rows = output.sequences[:, len(prompt) :].tolist()
    scores = output.sequences_scores.tolist() if beams > 1 else [0.0]
    return [
        (row[: row.index(end)], score)
        for row, score in zip(rows, scores, strict=True)
        if end in row
    ]


@pytest.fixture
def models(tmp_path):
    """For each kind: the library's model, the imported one, its directory, prompt and options."""

    def make_models(kind):
        if kind in ("opus", "tc-big"):
            model, pieces, _ = marian(tmp_path / "hf", kind)
            model.final_logits_bias[0, pieces.index("<unk>")] = -1e4
            model.final_logits_bias[0, model.config.eos_token_id] = 1.0  # ends come early
            model.save_pretrained(tmp_path / "hf")
            options, prompt = {}, [model.config.pad_token_id]
        else:
            model = multilingual(tmp_path / "hf", kind)
            names = ("en", "fr") if kind == "m2m" else ("en_XX", "fr_XX")
            options = dict(zip(("source_language", "target_language"), names, strict=True))
            prompt = [model.config.eos_token_id]
            model.model.shared.weight.data[model.config.eos_token_id] *= -1  # ends come later
            model.save_pretrained(tmp_path / "hf")
            model.generation_config.suppress_tokens = [1, 3]
        converted = import_model(str(tmp_path / "hf"), tmp_path / "ours")
        tokenizer = converted.tokenizer.for_languages(
            options.get("source_language"), options.get("target_language")
        )
        prompt += [converted.ids[n] for n in tokenizer.target.start]
        sources = [
            [converted.ids[n] for n in (*tokenizer.source.encode(text), 3)] for text in TEXTS
        ]
        return model, converted, tmp_path / "ours", sources, prompt, options

    return make_models


def own(converted, ids, prompt):
    """Our ids of a translation of the library, with the language behind its prompt."""
    return tuple(converted.ids.index(n) for n in (*prompt[1:], *ids))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("opus", AVERAGE), ("opus", SUM), ("tc-big", AVERAGE), ("nllb", SUM), ("m2m", SUM)],
)
def test_the_best_translation_is_that_of_the_library(models, kind, settings):
    model, converted, path, sources, prompt, options = models(kind)
    n_prompt = len(prompt) - 1  # the language counts as a token of ours
    translations = list(
        translate_lines(
            path, TEXTS, beam_size=WIDE, max_length=N_TOKENS + n_prompt, **settings, **options
        )
    )
    n_compared = 0
    for text, source in zip(translations, sources, strict=True):
        best = text.hypotheses[0]
        logs = best.token_log_probabilities[n_prompt:]
        theirs = generate_ended(model, source, prompt, settings["length_penalty"], WIDE, N_TOKENS)
        ended = [(ids, score) for ids, score in theirs if len(ids) <= N_TOKENS]
        divisor = len(logs) if settings is AVERAGE else 1
        if ended:
            assert sum(logs) / divisor >= max(score for _, score in ended) - CLOSE
        if ended and best.is_finished:
            ids, score = max(ended, key=lambda pair: pair[1])
            assert own(converted, ids, prompt) == best.token_ids
            assert abs(sum(logs) / divisor - score) <= CLOSE
            n_compared += 1
    assert n_compared >= 2
    assert settings is SUM or any(text.text for text in translations)


@pytest.mark.parametrize("kind", ["opus", "nllb"])
def test_log_probabilities_are_those_of_the_library(models, kind):
    """Sums that are scored are those of what the library wrote."""
    model, converted, path, sources, prompt, options = models(kind)
    tokenizer = converted.tokenizer.for_languages(*(options.values() or (None, None)))
    ours = load_model_directory(path)
    pairs, wanted = [], []
    for text, source in zip(TEXTS, sources, strict=True):
        for ids, score in generate_ended(model, source, prompt, 0.0, 30, 6):
            pairs.append((tokenizer.source.encode(text), own(converted, ids, prompt)))
            wanted.append(score)
    assert len({ids for _, ids in pairs}) >= 3
    scored = score_pairs(ours.model, *zip(*pairs, strict=True), ours.decoding, device="cpu")
    for target, score in zip(scored, wanted, strict=True):
        assert abs(sum(target.token_log_probabilities[len(prompt) - 1 :]) - score) <= CLOSE


@pytest.mark.parametrize("kind", ["opus", "nllb", "m2m"])
def test_greedy_ids_are_those_of_the_library(models, kind):
    model, converted, path, sources, prompt, options = models(kind)
    n_prompt = len(prompt) - 1
    translations = translate_lines(path, TEXTS, beam_size=1, max_length=12 + n_prompt, **options)
    end = model.config.eos_token_id
    for text, source in zip(translations, sources, strict=True):
        output = model.generate(
            torch.tensor([source]),
            decoder_input_ids=torch.tensor([prompt]),
            num_beams=1,
            max_new_tokens=13,
            max_length=None,
        )
        ids = output[0, len(prompt) :].tolist()
        ids = ids[: ids.index(end)] if end in ids else ids[:12]
        assert text.hypotheses[0].token_ids == own(converted, ids, prompt)


def test_every_setting_of_sampling_is_written_or_chooses_among_texts():
    library = transformers.GenerationConfig().to_dict().keys()
    assert set(SAMPLED) <= library
    # Another option that shapes the distribution needs a key in `written_search`
    assert set(NEED_SAMPLING) - library == {"candidates"}
