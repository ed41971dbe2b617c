"""Language models beside what others train, continue and score them with: speed and memory.

    python tests/benchmarks/language_model_speed.py train --text input.txt
    python tests/benchmarks/language_model_speed.py generate --model DIR|random [--ctranslate2]

`train` races `tformer train` and a loop as nanoGPT has it (AdamW, random windows of the same
length, no dropout, gradients clipped) over the same model in plain torch. `generate` continues one
prompt and many with the directory of a GPT-2 or LLaMA of Hugging Face's, greedily and to the same
length, by tformer, transformers and, if asked, CTranslate2. "random" is a GPT-2 of 12
layers of 512 with random weights and the vocabulary of this file.

Contestants run one after the other in processes of their own, A B A B. Compared are processor and
wall seconds, of trainings those of a long run less those of a short one, so that neither imports
nor files count; of each contestant the best of some rounds.
"""

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SHAPES = {
    "nano": {"width": 128, "heads": 4, "layers": 4, "window": 64, "batch": 12},
    "baby": {"width": 384, "heads": 6, "layers": 6, "window": 256, "batch": 16},
}
"""nanoGPT's models of Shakespeare's characters, for a CPU and for a GPU (with a smaller batch)."""
PROMPT = "It was the best of times, it was the worst of times, it was the age of wisdom,"


class Cost(NamedTuple):
    """What a process took."""

    processor: float
    wall: float
    peak: float
    """MB."""


def run(command: Sequence[str], threads: int) -> Cost:
    """Runs a command to its end; its output is shown if it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    begin = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise SystemExit(f"{' '.join(command)}\n{output.read().decode(errors='replace')}")
    wall = time.monotonic() - begin
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024)


def race(
    contestants: dict[str, Callable[[int], list[str]]],
    amounts: tuple[int, int],
    rounds: int,
    threads: int,
) -> dict[str, Cost]:
    """Runs all in turns; the least cost of the work between two amounts, and the highest peak."""
    found: dict[str, list[Cost]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, command in contestants.items():
            less, more = (run(command(amount), threads) for amount in amounts)
            cost = Cost(more.processor - less.processor, more.wall - less.wall, more.peak)
            found[name].append(cost)
            sys.stderr.write(f"{name}: {cost.processor:.1f} s of processor, {cost.wall:.1f} s\n")
    return {
        name: Cost(
            min(one.processor for one in costs),
            min(one.wall for one in costs),
            max(one.peak for one in costs),
        )
        for name, costs in found.items()
    }


def show(costs: dict[str, Cost], n_tokens: int, title: str) -> None:
    """Prints a table; shares are of the first contestant."""
    first = next(iter(costs.values()))
    columns = ("tokens/s of processor", "first is × as fast", "tokens/s", "× as fast", "peak MB")
    sys.stdout.write(f"{title:34}{''.join(f'{column:>24}' for column in columns)}\n")
    for name, cost in costs.items():
        values = (
            f"{n_tokens / cost.processor:,.0f}",
            f"{cost.processor / first.processor:.2f}",
            f"{n_tokens / cost.wall:,.0f}",
            f"{cost.wall / first.wall:.2f}",
            f"{cost.peak:,.0f}",
        )
        sys.stdout.write(f"{name:34}{''.join(f'{value:>24}' for value in values)}\n")


def train(options: argparse.Namespace) -> None:
    """Races trainings of one model."""
    shape = SHAPES[options.shape]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        recipe = work / "recipe.toml"
        recipe.write_text(_recipe(options.text.resolve(), shape), encoding="utf-8")

        def tformer(precision: str) -> Callable[[int], list[str]]:
            def command(steps: int) -> list[str]:
                run = tempfile.mkdtemp(dir=work)
                given = ("--max-steps", str(steps), "--precision", precision, "--quiet")
                return [*_TFORMER, "train", str(recipe), "-o", f"{run}/run", *given]

            return command

        def plain(precision: str) -> Callable[[int], list[str]]:
            return lambda steps: _child("train", options.text, options.shape, precision, steps)

        costs = race(
            {
                "tformer, bfloat16": tformer("bfloat16"),
                "plain torch, bfloat16": plain("bfloat16"),
                "tformer, float32": tformer("float32"),
                "plain torch, float32 (nanoGPT's)": plain("float32"),
            },
            (options.least, options.most),
            options.rounds,
            options.threads,
        )
    n_tokens = (options.most - options.least) * shape["window"] * shape["batch"]
    show(costs, n_tokens, f"training, {options.shape}, {options.threads} threads")


def _recipe(text: Path, shape: dict[str, int]) -> str:
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


def train_plainly(text: str, shape_name: str, precision: str, steps: str) -> None:
    """Trains a GPT in torch alone, by the loop of nanoGPT."""
    import torch
    from torch import Tensor, nn
    from torch.nn import functional

    shape = SHAPES[shape_name]
    width, window = shape["width"], shape["window"]

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
            self.qkv = nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.up = nn.Linear(width, 4 * width, bias=False)
            self.down = nn.Linear(4 * width, width, bias=False)

        def forward(self, x: Tensor) -> Tensor:
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


def generate(options: argparse.Namespace) -> None:
    """Races continuations of prompts, and measures the time to the first token."""
    work = Path(tempfile.mkdtemp())
    imported = work / "tformer"
    if options.model == "random":
        subprocess.run(_child("random", work / "model"), check=True)
        options.model = str(work / "model")
    subprocess.run([*_TFORMER, "import", options.model, "-o", imported, "--quiet"], check=True)
    names = ["tformer", "tformer-int8", "transformers", "transformers-bfloat16"]
    if options.ctranslate2:
        names += ["ctranslate2", "ctranslate2-int8"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    for n_prompts in (1, options.prompts):
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for _, name in itertools.product(range(options.rounds), names):
            command = _child("generate", name, options.model, imported, n_prompts, options.length)
            done = subprocess.run(command, env=environment, capture_output=True, check=False)
            if done.returncode:
                raise SystemExit(f"{' '.join(command)}\n{done.stderr.decode(errors='replace')}")
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
        costs = {
            name: Cost(
                min(one["processor"] for one in answers),
                min(one["wall"] for one in answers),
                max(one["peak"] for one in answers),
            )
            for name, answers in found.items()
        }
        n_tokens = options.length * n_prompts
        show(costs, n_tokens, f"{n_prompts} prompts, {options.threads} threads")
        firsts = (f"{name} {min(one['first'] for one in found[name]):.4f}" for name in names)
        sys.stdout.write(f"seconds to the first token of all: {', '.join(firsts)}\n\n")


def generate_by(name: str, model: str, imported: str, n_prompts: str, length: str) -> None:
    """Continues prompts with an opened model; prints the least seconds of three times."""
    prompts = [f"{number} {PROMPT}" for number in range(int(n_prompts))]
    continued = _GENERATORS[name.partition("-")[0]](model, imported, name.partition("-")[2])
    continued(prompts[:1], 2)
    firsts, processors, walls = [], [], []
    for _ in range(3):
        begin = time.perf_counter()
        continued(prompts, 1)
        firsts.append(time.perf_counter() - begin)
        begin, started = time.perf_counter(), time.process_time()
        lengths = continued(prompts, int(length))
        processors.append(time.process_time() - started)
        walls.append(time.perf_counter() - begin)
        if set(lengths) != {int(length)}:
            raise SystemExit(f"{name}: wrote {lengths} tokens instead of {length}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    answer = {"first": min(firsts), "processor": min(processors), "wall": min(walls), "peak": peak}
    sys.stdout.write(f"{json.dumps(answer)}\n")


def make_random(folder: str) -> None:
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


Continued = Callable[[Sequence[str], int], list[int]]
"""Continues prompts by so many tokens; returns how many there were."""


def by_tformer(_: str, imported: str, precision: str) -> Continued:
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

    def continued(prompts: Sequence[str], length: int) -> list[int]:
        generator.config = replace(config, max_length=length, min_length=length)
        return [len(one.texts[0].token_ids) for one in generator.generate(prompts)]

    return continued


def by_transformers(model: str, _: str, precision: str) -> Continued:
    """Opens the model with Hugging Face's library."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    tokenizer.pad_token = tokenizer.eos_token
    loaded = AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.bfloat16 if precision else torch.float32
    ).eval()

    def continued(prompts: Sequence[str], length: int) -> list[int]:
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

    return continued


def by_ctranslate2(model: str, imported: str, precision: str) -> Continued:
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

    def continued(prompts: Sequence[str], length: int) -> list[int]:
        tokens = [tokenizer.convert_ids_to_tokens(tokenizer.encode(one)) for one in prompts]
        found = generator.generate_batch(
            tokens,
            max_length=length,
            min_length=length,
            include_prompt_in_result=False,
            sampling_topk=1,
        )
        return [len(one.sequences_ids[0]) for one in found]

    return continued


_GENERATORS: dict[str, Callable[[str, str, str], Continued]] = {
    "tformer": by_tformer,
    "transformers": by_transformers,
    "ctranslate2": by_ctranslate2,
}
_TFORMER = (sys.executable, "-m", "tformer_cli")
_CHILDREN: dict[str, Callable[..., None]] = {
    "train": train_plainly,
    "generate": generate_by,
    "random": make_random,
}


def _child(*arguments: Any) -> list[str]:
    return [sys.executable, __file__, "child", *map(str, arguments)]


def main() -> None:
    """Reads the command line, of a user or of a child."""
    if sys.argv[1:2] == ["child"]:
        _CHILDREN[sys.argv[2]](*sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("--text", type=Path, required=True, help="a text, UTF-8")
    training.add_argument("--shape", choices=SHAPES, default="nano")
    training.add_argument("--least", type=int, default=10, help="steps of a short run [10]")
    training.add_argument("--most", type=int, default=110, help="steps of a long run [110]")
    generation = commands.add_parser("generate")
    generation.add_argument(
        "--model", required=True, help="directory of a GPT-2 or LLaMA, or: random"
    )
    generation.add_argument("--length", type=int, default=100, help="tokens that follow [100]")
    generation.add_argument("--prompts", type=int, default=16, help="prompts at once [16]")
    generation.add_argument("--ctranslate2", action="store_true", help="race it, too")
    for one in (training, generation):
        one.add_argument("--rounds", type=int, default=2)
        one.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    {"train": train, "generate": generate}[options.command](options)


if __name__ == "__main__":
    main()
