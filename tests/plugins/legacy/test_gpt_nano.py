"""gpt-nano, which minGPT trained to sort: every intermediate tensor, and all sequences sorted.

TFORMER_GPT_NANO names gpt-nano-sort-model.json of llm-viz (github.com/bbycroft/llm-viz, public/);
gpt-nano-sort-partials.json lies beside it. Their tensors are float32 in base64; they are saved here
as minGPT saves its models, and imported from there.
"""

import base64
import json
import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.foreign.test_gpt2 import import_both
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.kinds.lines.generate import generate_texts
from tformer_cli.plugins.instruments.walkthrough import step

FILE = Path(os.environ.get("TFORMER_GPT_NANO", "gpt-nano-sort-model.json"))
N_SORTED = 6
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        "TFORMER_GPT_NANO" not in os.environ,
        reason="TFORMER_GPT_NANO names no gpt-nano-sort-model.json",
    ),
]


def read_tensors(file):
    """Reads the tensors of a file of llm-viz."""
    return {
        name: torch.from_numpy(
            np.frombuffer(base64.b64decode(value["data"]), "<f4").copy()
        ).reshape(value["shape"])
        for name, value in json.loads(file.read_text()).items()
        if name != "config"
    }


@pytest.fixture
def nano(tmp_path):
    """Imports the model; returns what was converted and the model directory."""
    run = tmp_path / "run"
    run.mkdir()
    torch.save(read_tensors(FILE), run / "model.pt")
    settings = json.loads(FILE.read_text())["config"]
    (run / "config.json").write_text(json.dumps({"model": settings}))
    return import_both(run, tmp_path)


FIRST = "decoder.layers.0."
PLACES = {
    "decoder_input": ("x", "idx"),
    f"{FIRST}self_attention": ("yProj", "ln1"),
    f"{FIRST}self_attention.in_projection": ("qkv", "ln1"),
    f"{FIRST}self_attention.out_projection": ("yProj", "y"),
    f"{FIRST}feed_forward_norm": ("ln2", "attnResid"),
    f"{FIRST}feed_forward": ("mlp", "ln2"),
    f"{FIRST}feed_forward.inner": ("fc", "ln2"),
    f"{FIRST}feed_forward.outer": ("mlp", "gelu"),
    FIRST.rstrip("."): ("mlpResid",),
    "decoder.layers.1.self_attention_norm": ("", "block0"),
    "decoder.layers.2.self_attention_norm": ("", "block1"),
    "decoder.final_norm": ("ln_f", "block2"),
}
"""What comes out of a module and what goes into it, by the names of llm-viz; its ln1 … mlpResid are
those of the first block."""


def compute_tensors(model, ids):
    """Computes the tensors that llm-viz stores: (place, name, tensor); and the logits."""
    seen, taps, handles = [], [], []

    def listen(place, names):
        def hook(_, arguments, output):
            for name, value in zip(names, (output, *arguments), strict=False):
                seen.append((place, name, value))

        handles.append(model.get_submodule(place).register_forward_hook(hook))

    for place, names in PLACES.items():
        listen(place, names)
    handles.append(model.get_submodule(f"{FIRST}self_attention").tap(taps.append))
    nothing = torch.full((len(ids), 1), 3)
    with torch.inference_mode():
        logits = model(nothing, nothing == 3, ids)
    for handle in handles:
        handle.remove()
    (tap,) = taps
    heads = {"q": tap.query, "k": tap.key, "v": tap.value, "attSm": tap.weights()}
    return [*seen, *(("tap", *item) for item in heads.items())], logits


def test_every_intermediate_tensor_is_theirs(nano):
    found, ours = nano
    theirs = read_tensors(FILE.with_name("gpt-nano-sort-partials.json"))
    first = found.ids.index(0)
    seen, logits = compute_tensors(ours.model, theirs["idx"].long() + first)
    logits = logits[..., first:]
    seen += [("", "lm_head", logits), ("", "probs", logits.softmax(-1))]
    compared = set()
    for place, name, value in seen:
        if name not in ("", "idx"):
            expected = theirs[name].reshape(-1, theirs[name].shape[-1])
            # products of rows may be padded with more of them
            rows = value.reshape(-1, value.shape[-1])[: len(expected)]
            difference = (rows - expected).abs().max()
            assert difference <= 1e-5, f"{place}: {name} differs by {difference}"
            compared.add(name)
    # the sums of the embeddings are x; `att` are the scores before the softmax
    assert set(theirs) - compared == {"idx", "tok_emb", "pos_emb", "att"}


def test_all_sequences_are_sorted(nano, tmp_path):
    found, ours = nano
    sequences = list(product(range(3), repeat=N_SORTED))
    prompts = [" ".join(map(str, numbers)) for numbers in sequences]
    # generate reads what it writes, and there is no position left to read the last number at
    texts = generate_texts(tmp_path / "ours", prompts, beam_size=1, max_length=N_SORTED - 1)
    lines = [text.prompt + text.texts[0].text for text in texts]
    ids = torch.tensor(ours.tokenizer.target.encode_batch(lines))
    assert ids.shape == (729, ours.model.max_positions)
    nothing = torch.full((len(ids), 1), 3)
    with torch.inference_mode():
        last = ours.model(nothing, nothing == 3, ids)[:, -1].argmax(-1)
    written = torch.cat([ids[:, N_SORTED:], last[:, None]], dim=1) - found.ids.index(0)
    assert written.tolist() == [sorted(numbers) for numbers in sequences]


def step_by_step(ours, head, row, text):
    """Works through a head for a token of a text: the tables by their names."""
    settings = {"head": f"dec.0.{head}", "token": str(row), "tolerance": 1e-5}
    (record,) = inspect_view("step", ours.path, [text], settings=settings)
    assert (record.row, record.difference < 1e-5) == (row, True)
    return {table.name: table for step in record.steps for table in step.tables}


def test_a_walkthrough_shows_their_numbers(nano, monkeypatch):
    _, ours = nano
    theirs = read_tensors(FILE.with_name("gpt-nano-sort-partials.json"))
    # tokens of this model are numbers, by which they would be found before their positions
    monkeypatch.setattr(step, "find_token", lambda wanted, *_: int(wanted))
    compared = set()

    def same(name, values, expected, visible=None):
        expected = expected.double() if visible is None else expected.double()[:visible]
        difference = (values - expected).abs().max().item()
        assert difference <= 1e-5, f"{name} differs by {difference}"
        compared.add(name)

    for number, ids in enumerate(theirs["idx"].long().tolist()):
        text = " ".join(map(str, ids))
        for head, row in product(range(3), (0, 4, 10)):
            shown = step_by_step(ours, head, row, text)
            entering = shown["input"].values
            assert shown["input"].rows == ("E[token]", "PE(position)", "x", "LN(x)")
            same("tok_emb", entering[0], theirs["tok_emb"][number, row])
            same("pos_emb", entering[1], theirs["pos_emb"][0, row])
            same("x", entering[2], theirs["x"][number, row])
            same("ln1", entering[3], theirs["ln1"][number, row])
            same("q", shown["q"].values[0], theirs["q"][number, head, row])
            for name in "kv":
                same(name, shown[name].values, theirs[name][number, head])
            scaled = shown["scaled"].values[:, 1]
            same("att", scaled[: row + 1], theirs["att"][number, head, row], row + 1)
            assert scaled[row + 1 :].isneginf().all()
            same("attSm", shown["weights"].values[:, 2], theirs["attSm"][number, head, row])
            same("attSm of all", shown["attention"].values, theirs["attSm"][number, head])
            same("y", shown["z"].values[0], theirs["y"][number, row, 16 * head : 16 * head + 16])
            same("y of all", shown["heads"].values.flatten(), theirs["y"][number, row])
            same("yProj", shown["attended"].values[0], theirs["yProj"][number, row])
            same("attnResid", shown["residual"].values[2], theirs["attnResid"][number, row])
            same("ln_f", shown["h"].values[0], theirs["ln_f"][number, row])
            words = shown["words"]
            for place, label in enumerate(words.rows):
                if label.strip("▁") in ("0", "1", "2"):
                    token = int(label.strip("▁"))
                    same("lm_head", words.values[place, 0], theirs["lm_head"][number, row, token])
                    same("probs", words.values[place, 2], theirs["probs"][number, row, token])
    assert len(compared) == 17
