"""Cold starts beside those of the nearest peer: what one waits for before anything is computed.

    python tests/benchmarks/cold_start.py MODEL [--opus DIR] [--rounds 7] [--json FILE]

Commands and peers take turns. Seconds on the clock are what one waits; seconds of computing (user
and system time of the process) differ less from round to round on a machine that others use, too,
and are what the ratio compares. `--opus` names a folder with `source.spm`, `target.spm`,
`vocab.json` and `config.json` of an OPUS-MT model; a model of that shape with random weights is
then imported, and translates a line, by tformer and by CTranslate2.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from harness import TFORMER, cost_of, print_table, write_json

HERE = Path(sys.executable).parent
LINE = "The old house is green."
LONGEST = "20"
"""Tokens of a translation: random weights write until they may not."""
CTRANSLATE2 = f"""
import sys, ctranslate2, sentencepiece
model, pieces = sys.argv[1:]
read = sentencepiece.SentencePieceProcessor
source = [*read(f"{{pieces}}/source.spm").encode({LINE!r}, out_type=str), "</s>"]
translator = ctranslate2.Translator(model, intra_threads=1)
found = translator.translate_batch([source], beam_size=4, max_decoding_length={LONGEST})
print(read(f"{{pieces}}/target.spm").decode(found[0].hypotheses[0]))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="a model directory")
    parser.add_argument("--opus", type=Path, help="folder of an OPUS-MT model's small files")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each command [7]")
    parser.add_argument("--json", type=Path, help="write all figures here too")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as work:
        # compiled modules are kept, as they are where tformer is installed
        os.environ["PYTHONPYCACHEPREFIX"] = f"{work}/bytecode"
        rows = starts(arguments.model)
        if arguments.opus:
            rows |= imports(arguments.opus, Path(work))
        runs = {}
        for turn in range(arguments.rounds + 1):
            for name, sides in rows.items():
                for side, command in sides.items():
                    cost = cost_of(command, threads=1)
                    if turn:
                        runs.setdefault(name, {}).setdefault(side, []).append(cost)
    medians = {
        name: {side: medians_of(costs) for side, costs in row.items()} for name, row in runs.items()
    }
    titles = ("computing s", "peer's", "ratio", "seconds", "peer's", "MB", "peer's")
    print_table(
        f"cold starts, medians of {arguments.rounds} rounds",
        ("command / peer", *titles),
        (cells(name, row["own"], row["peer"]) for name, row in medians.items()),
    )
    write_json(arguments.json, {"medians": medians, "runs": runs})


def starts(model):
    """Commands of tformer that compute next to nothing, each with its peer."""
    sacrebleu = [HERE / "sacrebleu", "--help"]
    libraries = [sys.executable, "-c", "import ctranslate2, tokenizers"]
    completion = ["env", "_TFORMER_COMPLETE=complete_bash", "COMP_WORDS=tformer tr", "COMP_CWORD=1"]
    return {
        "--help / sacrebleu --help": {"own": [*TFORMER, "--help"], "peer": sacrebleu},
        "completion / sacrebleu --help": {
            "own": [*completion, HERE / "tformer"], "peer": sacrebleu,
        },
        "translate --help / sacrebleu --help": {
            "own": [*TFORMER, "translate", "--help"], "peer": sacrebleu,
        },
        "translate, a line / import ctranslate2, tokenizers": {
            "own": [*TFORMER, "translate", model, LINE], "peer": libraries,
        },
        "inspect-heads, a line / import torch": {
            "own": [*TFORMER, "inspect-heads", model, LINE],
            "peer": [sys.executable, "-c", "import torch"],
        },
    }  # fmt: skip


def imports(opus, work):
    """The import of a model of OPUS-MT's size, and the first line after it."""
    theirs, own, converted = work / "theirs", work / "own", work / "converted"
    # A process of its own: what it imports is no start of ours
    cost_of([sys.executable, __file__, "make", opus, theirs])
    refreshed = 'rm -rf "$1" && exec "${@:2}"'  # else the second import finds its result
    return {
        "import / ct2-transformers-converter": {
            "own": ["bash", "-c", refreshed, "-", own, *TFORMER, "import", theirs, "-o", own, "-q"],
            "peer": [
                HERE / "ct2-transformers-converter", "--model", theirs, "--output_dir", converted,
                "--force",
            ],
        },
        "its first line / by ctranslate2 and sentencepiece": {
            "own": [
                *TFORMER, "translate", own, "-q", "--beam-size", "4", "--max-length", LONGEST, LINE,
            ],
            "peer": [sys.executable, "-c", CTRANSLATE2, converted, theirs],
        },
    }  # fmt: skip


def make_random(opus, output):
    """Writes a model with the settings and files of another one and random weights."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    MarianMTModel(MarianConfig.from_pretrained(opus)).save_pretrained(output)
    for name in ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"):
        shutil.copy(Path(opus) / name, output)


def medians_of(costs):
    return list(map(statistics.median, zip(*costs, strict=True)))


def cells(name, own, peer):
    computing, wall, peak = zip(own, peer, strict=True)
    seconds = [f"{number:.2f}" for number in computing]
    return (
        name, *seconds, f"{own[0] / peer[0]:.2f}", *(f"{number:.2f}" for number in wall),
        *(f"{number:.0f}" for number in peak),
    )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make_random(*sys.argv[2:])
    else:
        main()
