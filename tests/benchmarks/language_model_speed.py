"""Language models beside what others train, continue and score them with: speed and memory.

    python tests/benchmarks/language_model_speed.py train --text input.txt
    python tests/benchmarks/language_model_speed.py generate --model DIR|random|stories

`train` races `tformer train` and a loop as nanoGPT has it (AdamW, random windows of the same
length, no dropout, gradients clipped) over the same model in plain torch. `generate` continues one
prompt and many with the directory of a GPT-2 or LLaMA of Hugging Face's, greedily and to the same
length, by tformer, transformers and CTranslate2. "random" is a GPT-2 of 12 layers of 512 with
random weights and the vocabulary of this file; "stories" a LLaMA of the shape of llama2.c's
stories15M (6 layers of 288, 32,000 tokens) with random weights.

Contestants run one after the other in processes of their own, A B A B. Compared are processor and
wall seconds, of trainings those of a long run less those of a short one, so that neither imports
nor files count; of each contestant the best of some rounds.
"""

import argparse
import itertools
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from harness import TFORMER, Cost, cost_of, print_table, say, work_directory, write, write_json

SHAPES = {
    "nano": {"width": 128, "heads": 4, "layers": 4, "window": 64, "batch": 12},
    "baby": {"width": 384, "heads": 6, "layers": 6, "window": 256, "batch": 16},
}
"""nanoGPT's models of Shakespeare's characters, for a CPU and for a GPU (with a smaller batch)."""
PROMPT = "It was the best of times, it was the worst of times, it was the age of wisdom,"


def show(contestants, n_tokens, title):
    """Prints the least seconds of each contestant and its highest peak; shares are of the first."""
    rows = []
    for name, costs in contestants.items():
        processor, wall, peak = zip(*costs, strict=True)
        rows.append((name, Cost(min(processor), min(wall), max(peak))))
    first = rows[0][1]
    columns = ("tokens/s of processor", "first is × as fast", "tokens/s", "× as fast", "peak MB")
    print_table(
        title,
        ("contestant", *columns),
        (
            (
                name,
                f"{n_tokens / cost.processor:,.0f}",
                f"{cost.processor / first.processor:.2f}",
                f"{n_tokens / cost.wall:,.0f}",
                f"{cost.wall / first.wall:.2f}",
                f"{cost.peak:,.0f}",
            )
            for name, cost in rows
        ),
    )


def train(options):
    """Races trainings of one model; what counts is a long one less a short one."""
    shape, found = SHAPES[options.shape], {}
    with work_directory(None) as work:
        recipe = work / "recipe.toml"
        recipe.write_text(_recipe(options.text.resolve(), shape), encoding="utf-8")

        def tformer(precision, steps):
            run = f"{tempfile.mkdtemp(dir=work)}/run"
            given = ("--max-steps", steps, "--precision", precision, "--quiet")
            return [*TFORMER, "train", recipe, "-o", run, *given]

        def plain(precision, steps):
            return _child("train", options.text, options.shape, precision, steps)

        contestants = {
            f"{name}, {precision}": (command, precision)
            for precision in options.precisions
            for name, command in (("tformer", tformer), ("plain torch, as nanoGPT", plain))
        }
        for _ in range(options.rounds):
            for name, (command, precision) in contestants.items():
                less, more = (
                    cost_of(command(precision, steps), threads=options.threads)
                    for steps in (options.least, options.most)
                )
                cost = Cost(more.processor - less.processor, more.wall - less.wall, more.peak)
                found.setdefault(name, []).append(cost)
                say(f"{name}: {cost.processor:.1f} s of processor, {cost.wall:.1f} s")
    n_tokens = (options.most - options.least) * shape["window"] * shape["batch"]
    show(found, n_tokens, f"training, {options.shape}, {options.threads} threads")


def _recipe(text, shape):
    return f"""
[task]
kind = "language-model"
[data]
text = "stream"
max_length = {shape["window"]}
train = [{{ text = {json.dumps(str(text))} }}]
[tokenizer]
algorithm = "char"
vocab_size = 100
[model]
d_model = {shape["width"]}
n_heads = {shape["heads"]}
d_ff = {4 * shape["width"]}
n_decoder_layers = {shape["layers"]}
norm = "pre"
positions = "learned"
activation = "gelu"
bias = false
scale_embeddings = false
max_positions = {shape["window"] + 1}
dropout = 0.0
[training]
tokens_per_batch = {shape["window"] * shape["batch"]}
optimizer = "adamw"
weight_decay = 0.1
learning_rate = 1e-3
beta2 = 0.99
average = "none"
label_smoothing = 0.0
report_every = 100000
checkpoint_every = 100000
"""


def train_plainly(text, shape_name, precision, steps):
    """Trains a GPT in torch alone, by the loop of nanoGPT."""
    import torch
    from torch import nn
    from torch.nn import functional

    shape = SHAPES[shape_name]
    width, window = shape["width"], shape["window"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
            self.qkv = nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.up = nn.Linear(width, 4 * width, bias=False)
            self.down = nn.Linear(4 * width, width, bias=False)

        def forward(self, x):
            rows, length, _ = x.shape
            heads = (
                part.view(rows, length, shape["heads"], -1).transpose(1, 2)
                for part in self.qkv(self.norms[0](x)).split(width, dim=2)
            )
            seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
            return x + self.down(functional.gelu(self.up(self.norms[1](x))))

    characters = Path(text).read_text(encoding="utf-8")
    kinds = {character: number for number, character in enumerate(sorted(set(characters)))}
    ids = torch.tensor([kinds[character] for character in characters])
    torch.manual_seed(1)
    tokens, places = nn.Embedding(len(kinds), width), nn.Embedding(window, width)
    blocks = nn.Sequential(*(Block() for _ in range(shape["layers"])))
    norm = nn.LayerNorm(width, bias=False)
    parameters = [p for m in (tokens, places, blocks, norm) for p in m.parameters()]
    for parameter in parameters:
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)
    groups = [
        {"params": [p for p in parameters if p.dim() == 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() != 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
    for _ in range(int(steps)):
        starts = torch.randint(len(ids) - window, (shape["batch"],)).tolist()
        read = torch.stack([ids[start : start + window] for start in starts])
        right = torch.stack([ids[start + 1 : start + window + 1] for start in starts])
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            hidden = norm(blocks(tokens(read) + places.weight))
            logits = functional.linear(hidden, tokens.weight)
            loss = functional.cross_entropy(logits.float().flatten(0, 1), right.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def generate(options):
    """Races continuations of prompts, and measures the time to the first token."""
    precisions = {"tformer": ("", "-int8"), "ctranslate2": ("", "-int8"), "transformers": ("",)}
    if options.bfloat16:
        precisions["transformers"] += ("-bfloat16",)
    names = [name + precision for name in options.by for precision in precisions[name]]
    with work_directory(None) as work:
        model, imported, answer = options.model, work / "tformer", work / "answer"
        if model in ("random", "stories"):
            cost_of(_child(model, work / "model"))
            model = work / "model"
        cost_of([*TFORMER, "import", model, "-o", imported, "--quiet"])
        for n_prompts in (1, options.prompts):
            found, firsts = {name: [] for name in names}, {name: [] for name in names}
            for _, name in itertools.product(range(options.rounds), names):
                given = (name, model, imported, n_prompts, options.length, answer)
                cost_of(_child("generate", *given), threads=options.threads)
                first, *cost = json.loads(answer.read_text())
                firsts[name].append(first)
                found[name].append(Cost(*cost))
            title = f"{n_prompts} prompts, {options.threads} threads"
            show(found, options.length * n_prompts, title)
            said = (f"{name} {min(seconds):.4f}" for name, seconds in firsts.items())
            write(f"seconds to the first token of all: {', '.join(said)}\n")


def generate_by(name, model, imported, n_prompts, length, answer):
    """Continues prompts with an opened model; writes the least seconds of three times."""
    prompts = [f"{number} {PROMPT}" for number in range(int(n_prompts))]
    continued = _GENERATORS[name.partition("-")[0]](model, imported, name.partition("-")[2])
    continued(prompts[:1], 2)
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        continued(prompts, 1)
        first = time.perf_counter() - begin
        begin, started = time.perf_counter(), time.process_time()
        lengths = continued(prompts, int(length))
        times.append((first, time.process_time() - started, time.perf_counter() - begin))
        if set(lengths) != {int(length)}:
            raise SystemExit(f"{name}: wrote {lengths} tokens instead of {length}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    Path(answer).write_text(json.dumps([*map(min, zip(*times, strict=True)), peak]))


def make_random(folder):
    """Writes a GPT-2 with random weights and a byte-level tokenizer."""
    import tokenizers
    import transformers

    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=8000,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([__file__], trainer)
    ends = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends)
    size = {"vocab_size": fast.vocab_size, "bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(n_embd=512, n_layer=12, n_head=8, **size)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)


def make_stories(folder):
    """Writes a LLaMA with random weights and a SentencePiece tokenizer of made-up words."""
    import random
    import string

    import sentencepiece
    import transformers

    folder = Path(folder)
    folder.mkdir()
    draw = random.Random(1)
    words = ["".join(draw.choices(string.ascii_lowercase, k=8)) for _ in range(40_000)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=itertools.chain([PROMPT, string.printable.strip()], words),
        model_prefix=str(folder / "tokenizer"),
        model_type="bpe",
        byte_fallback=True,
        vocab_size=32_000,
        minloglevel=2,
    )
    config = transformers.LlamaConfig(
        vocab_size=32_000,
        hidden_size=288,
        intermediate_size=768,
        num_hidden_layers=6,
        num_attention_heads=6,
        max_position_embeddings=256,
        tie_word_embeddings=True,
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True},
    )


def by_tformer(_, imported, precision):
    """Opens the model as `tformer generate` does."""
    from dataclasses import replace

    from tformer_cli.kinds.opening import open_model

    generator = open_model(
        imported,
        "generate",
        precision=precision or "float32",
        beam_size=1,
        sampling=False,
        device="cpu",
    ).generator
    config = generator.config

    def continue_prompts(prompts, length):
        generator.config = replace(config, max_length=length, min_length=length)
        return [len(generation.texts[0].token_ids) for generation in generator.generate(prompts)]

    return continue_prompts


def by_transformers(model, _, precision):
    """Opens the model with Hugging Face's library."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    tokenizer.pad_token = tokenizer.eos_token
    loaded = AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.bfloat16 if precision else torch.float32
    ).eval()

    def continue_prompts(prompts, length):
        batch = tokenizer(list(prompts), return_tensors="pt", padding=True)
        with torch.inference_mode():
            found = loaded.generate(
                **batch,
                do_sample=False,
                max_new_tokens=length,
                min_new_tokens=length,
                pad_token_id=tokenizer.pad_token_id,
            )
        return [found.shape[1] - batch["input_ids"].shape[1]] * len(prompts)

    return continue_prompts


def by_ctranslate2(model, imported, precision):
    """Opens the model with CTranslate2, converted once."""
    import ctranslate2
    from transformers import AutoTokenizer

    folder = Path(imported).parent / f"ctranslate2-{precision}"
    if not folder.exists():
        converter = ctranslate2.converters.TransformersConverter(model)
        converter.convert(str(folder), quantization=precision or "float32")
    threads = int(os.environ["OMP_NUM_THREADS"])
    generator = ctranslate2.Generator(str(folder), device="cpu", intra_threads=threads)
    tokenizer = AutoTokenizer.from_pretrained(model)

    def continue_prompts(prompts, length):
        tokens = [tokenizer.convert_ids_to_tokens(tokenizer.encode(prompt)) for prompt in prompts]
        found = generator.generate_batch(
            tokens,
            max_length=length,
            min_length=length,
            include_prompt_in_result=False,
            sampling_topk=1,
        )
        return [len(result.sequences_ids[0]) for result in found]

    return continue_prompts


_GENERATORS = {
    "tformer": by_tformer,
    "transformers": by_transformers,
    "ctranslate2": by_ctranslate2,
}
_CHILDREN = {
    "train": train_plainly,
    "generate": generate_by,
    "random": make_random,
    "stories": make_stories,
}


def _child(*arguments):
    return [sys.executable, __file__, "child", *map(str, arguments)]


def main():
    """Reads the command line, of a user or of a child."""
    if sys.argv[1:2] == ["child"]:
        _CHILDREN[sys.argv[2]](*sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("--text", type=Path, required=True, help="a text, UTF-8")
    training.add_argument("--shape", choices=SHAPES, default="nano")
    training.add_argument("--precisions", nargs="+", default=["bfloat16", "float32"])
    training.add_argument("--least", type=int, default=10, help="steps of a short run [10]")
    training.add_argument("--most", type=int, default=110, help="steps of a long run [110]")
    generation = commands.add_parser("generate")
    generation.add_argument(
        "--model", required=True, help="directory of a GPT-2 or LLaMA, or: random, stories"
    )
    generation.add_argument("--length", type=int, default=100, help="tokens that follow [100]")
    generation.add_argument("--prompts", type=int, default=16, help="prompts at once [16]")
    generation.add_argument("--by", nargs="+", default=list(_GENERATORS), help="[all]")
    generation.add_argument("--bfloat16", action="store_true", help="race transformers in it, too")
    for command in (training, generation):
        command.add_argument("--rounds", type=int, default=2)
        command.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    {"train": train, "generate": generate}[options.command](options)


if __name__ == "__main__":
    main()
