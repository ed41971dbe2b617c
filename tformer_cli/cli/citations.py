"""BibTeX of the methods that a command uses: ``tformer --cite COMMAND …``.

A command line, its models and its recipe are facts such as ``compare``, ``test=paired-bootstrap``,
``model.positions=rotary`` and ``training.r_drop``. A row of `USES` names the facts that all must
hold (after ``!``: must not) and the entries of methods.bib that these methods have.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Any

from tformer_cli.artifacts.config_file import TASKS, read_config
from tformer_cli.cli.options import PathRole
from tformer_cli.cli.streams import note
from tformer_cli.errors import TformerError, UsageError
from tformer_cli.recipe import load_recipe, seed_runs
from tformer_cli.sockets import load_place
from tformer_cli.version import __version__

TFORMER = f"""\
@software{{tformer,
  author = {{{{The tformer authors}}}},
  title = {{tformer: Train, Use and Understand {{Transformers}} from the Command Line}},
  version = {{{__version__}}},
  year = {{2026}},
}}
"""
_BLEU_AND_CHRF = ("papineni2002bleu", "popovic2015chrf", "post2018call")
_SCORES = (*_BLEU_AND_CHRF, "snover2006study")
_SEEDS = ("koehn2004statistical", "satterthwaite1946approximate", "welch1947generalization")
_WEIGHTINGS = ("kobayashi2020attention", "abnar2020quantifying", "ferrando2022towards")
_PATCHING = ("vig2020causal", "meng2022locating", "zhang2024towards")
_MUON = ("kingma2015adam", "loshchilov2019decoupled", "jordan2024muon", "liu2025muon")
_TRANSLATION_SCORES = "!text !task.kind=classify !task.kind=tag !task.kind=image"
USES: Mapping[str, tuple[str, ...]] = {
    "model": ("vaswani2017attention",),
    # the methods of `model.methods`; those without entries are the paper's, or have no paper
    "model.positions=sinusoidal": (),
    "model.positions=learned": ("gehring2017convolutional",),
    "model.positions=rotary": ("su2021roformer",),
    "model.positions=relative": ("raffel2020exploring",),
    "model.positions=alibi": ("press2022train",),
    "model.positions=segments": ("dai2019transformer",),
    "model.positions=none": (),
    "model.positions=table": (),
    "model.memory": ("dai2019transformer",),
    "model.similarity=scaled": (),
    "model.similarity=dot": ("luong2015effective",),
    "model.similarity=cosine": ("liu2022swin",),
    "model.similarity=distance": (),
    "model.similarity=additive": ("bahdanau2015neural",),
    "model.norm_kind=layer": ("ba2016layer",),
    "model.norm_kind=rms": ("zhang2019root",),
    "model.norm=post": (),
    "model.norm=pre": ("xiong2020layer",),
    "model.activation=relu": (),
    "model.activation=gelu": ("hendrycks2016gaussian",),
    "model.activation=gelu-tanh": ("hendrycks2016gaussian",),
    "model.activation=swish": ("ramachandran2017searching",),
    "model.gated": ("shazeer2020glu",),
    "model.n_key_heads": ("ainslie2023gqa",),
    "model.decoder_cell=ssru": ("kim2019research",),
    "model.unit_length": ("reimers2019sentence",),
    "task.kind=translate": (),
    "task.kind=classify": (),
    "task.kind=tag": ("devlin2019bert",),
    "task.kind=masked": ("devlin2019bert",),
    "task.kind=language-model": ("radford2018improving",),
    "task.kind=image": ("dosovitskiy2021image",),
    "task.kind=embed": ("reimers2019sentence",),
    "tokenizer.algorithm=bpe": ("sennrich2016neural",),
    "tokenizer.algorithm=unigram": ("kudo2018subword", "kudo2018sentencepiece"),
    "tokenizer.algorithm=word": (),
    "tokenizer.algorithm=char": (),
    "tokenizer.algorithm=byte": (),
    "tokenizer.dropout": ("provilkov2020bpe",),
    "tokenize-train algorithm=bpe": ("sennrich2016neural",),
    "tokenize-train algorithm=unigram": ("kudo2018subword", "kudo2018sentencepiece"),
    "training model.dropout": ("srivastava2014dropout",),
    "training.label_smoothing": ("szegedy2016rethinking",),
    "training.r_drop": ("liang2021rdrop",),
    "training.optimizer=adam": ("kingma2015adam",),
    "training.optimizer=adamw": ("kingma2015adam", "loshchilov2019decoupled"),
    "training.optimizer=muon": (*_MUON, "amsel2025polar"),
    "training.optimizer=normuon": (*_MUON, "amsel2025polar", "li2025normuon"),
    "training.cautious_decay": ("chen2025cautious",),
    "training.zero_outputs": ("zhang2019fixup",),
    "training.batch_growth": ("smith2018dont",),
    "training.shard_optimizer": ("rajbhandari2020zero",),
    "training.shard_weights": ("rajbhandari2020zero",),
    "training.activation_checkpointing": ("chen2016sublinear",),
    "training.average=ema": ("polyak1992acceleration",),
    "adapter.rank": ("hu2022lora",),
    "adapter": ("hu2022lora",),
    "distill": ("kim2016sequence",),
    "training validation.metric=bleu": ("papineni2002bleu", "post2018call"),
    "training validation.metric=chrf": ("popovic2015chrf", "post2018call"),
    "length_penalty": ("wu2016google",),
    "translate decoding.length_penalty": ("wu2016google",),
    "evaluate decoding.length_penalty": ("wu2016google",),
    "coverage_penalty": ("wu2016google",),
    "diversity_groups": ("vijayakumar2018diverse",),
    "risk=bleu": ("kumar2004minimum", "eikema2020map", "papineni2002bleu"),
    "risk=chrf": ("kumar2004minimum", "eikema2020map", "popovic2015chrf"),
    "repetition_penalty": ("keskar2019ctrl",),
    "sampling top_k": ("fan2018hierarchical",),
    "sampling top_p": ("holtzman2020curious",),
    "glossary": ("post2018fast",),
    "ban": ("post2018fast",),
    "shortlist": ("jean2015using",),
    "doubt": ("fomicheva2020unsupervised",),
    "calibrate": ("fomicheva2020unsupervised",),
    "score task.kind=masked": ("salazar2020masked",),
    f"evaluate reference {_TRANSLATION_SCORES}": _SCORES,
    f"evaluate confidence {_TRANSLATION_SCORES}": ("koehn2004statistical",),
    "evaluate baseline": ("koehn2004statistical",),
    "evaluate baseline_model": ("koehn2004statistical",),
    "compare !metric !labels": _SCORES,
    "compare metric=bleu": ("papineni2002bleu", "post2018call"),
    "compare metric=chrf": ("popovic2015chrf", "post2018call"),
    "compare metric=ter": ("snover2006study", "post2018call"),
    "compare metric=comet": ("rei2020comet",),
    "compare test=paired-bootstrap": ("koehn2004statistical",),
    "compare test=paired-approximate-randomization": ("riezler2005pitfalls",),
    "compare !labels": ("neubig2019compare",),
    "compare several_seeds": _SEEDS,
    "train seeds task.kind=translate": _BLEU_AND_CHRF,
    "study task.kind=translate": _BLEU_AND_CHRF,
    "train seeds are_resampled": ("koehn2004statistical",),
    "study are_resampled": ("koehn2004statistical",),
    "study several_seeds": _SEEDS,
    "inspect-heads": ("voita2019analyzing", "clark2019what"),
    "inspect-heads weights=alpha": (),
    "inspect-heads weights=norm": ("kobayashi2020attention",),
    "inspect-heads weights=rollout": ("abnar2020quantifying",),
    "inspect-heads weights=alti": ("ferrando2022towards",),
    "inspect-report": (
        *("voita2019analyzing", "clark2019what", "michel2019sixteen", *_WEIGHTINGS),
        *("nostalgebraist2020interpreting", "vig2020causal", "syed2023attribution"),
    ),
    "inspect-step": (),
    "inspect-positions": (),
    "inspect-logits": (),
    "inspect-logits lens": ("nostalgebraist2020interpreting", "belrose2023eliciting"),
    "inspect-image": _WEIGHTINGS,
    "inspect-flow": _WEIGHTINGS,
    "inspect-align": ("garg2019jointly", "chen2020accurate"),
    "inspect-align gold": ("och2003systematic",),
    "inspect-ablate": ("michel2019sixteen", "koehn2004statistical"),
    "inspect-diff": ("lin1991divergence", "kuhn1955hungarian"),
    "inspect-decision": (),
    "inspect-decision !method": (*_PATCHING, "syed2023attribution", "sundararajan2017axiomatic"),
    "inspect-decision method=patch": _PATCHING,
    "inspect-decision method=edges": ("syed2023attribution",),
    "inspect-decision method=gradients": ("syed2023attribution", "sundararajan2017axiomatic"),
    "inspect-circuit": (
        *("wang2023interpretability", "marks2024sparse", "hanna2024have"),
        *("syed2023attribution", "zhang2024towards"),
    ),
    "inspect-layers": ("langedijk2024decoderlens", "belrose2023eliciting"),
    "inspect-probe": ("alain2017understanding", "hewitt2019designing"),
}
"""Facts, and the entries of the methods that they mean."""
READ_STUDY = "tformer_cli.plugins.corpora_tools.study.plan:read_study"
_NEUTRAL = {"length_penalty": 0.0, "diversity_groups": 1, "repetition_penalty": 1.0, "top_p": 1.0}
"""Numbers other than 0 that switch a method off."""


def read_entries() -> dict[str, str]:
    """Reads the entries of methods.bib by their keys."""
    text = files("tformer_cli.cli").joinpath("methods.bib").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=@)", text)
    return {entry.partition("{")[2].partition(",")[0]: entry.rstrip() + "\n" for entry in entries}


def write_citations(facts: Iterable[str]) -> str:
    """Writes BibTeX of tformer and of the methods of these facts, in the order of methods.bib."""
    known = set(facts)
    keys = {key for names, keys in USES.items() if _hold(names, known) for key in keys}
    entries = [entry for key, entry in read_entries().items() if key in keys]
    return "\n".join([TFORMER, *entries])


def _hold(names: str, facts: set[str]) -> bool:
    return all((name.removeprefix("!") in facts) != name.startswith("!") for name in names.split())


def command_facts(ctx: Any, paths: Iterable[tuple[Any, PathRole]]) -> Iterator[str]:  # noqa: ANN401
    """Yields what a parsed command line says, and what its models and its recipe do."""
    name = "-".join(ctx.command_path.split()[1:])
    yield name
    yield from _facts_of(ctx.params, "")
    if name in ("train", "distill", "quickstart"):
        yield from _recipe_facts(name, ctx.params)
    if name == "study":
        yield from _study_facts(ctx.params)
    for parameter, role in paths:
        if role in (PathRole.reads_model, PathRole.reads_system):
            value = ctx.params.get(parameter.name)
            for path in value if isinstance(value, (list, tuple)) else [value] if value else []:
                yield from _system_facts(Path(str(path).rpartition("=")[2]))


def _system_facts(path: Path) -> Iterator[str]:
    runs = seed_runs(path)
    if len(runs) > 1:
        yield "several_seeds"
    yield from _model_facts(runs[0] if runs else path)


def _model_facts(path: Path) -> Iterator[str]:
    if path.is_file():  # translations, in the place of a system
        return
    try:
        config = read_config(path)
    except TformerError:
        note(f"{path}: is not a model directory of tformer; its methods are omitted")
        return
    yield "model"
    yield f"task.kind={config.task}"
    yield from _facts_of(config.model, "model.")
    yield from _facts_of(config.decoding, "decoding.")


def _recipe_facts(command: str, values: Mapping[str, Any]) -> Iterator[str]:
    if values.get("target") is not None:
        raise UsageError(
            "--cite: the recipe of these files is chosen when training begins; name it afterwards: "
            "tformer --cite train RUN/chosen.toml"
        )
    name = str(values.get("recipe") or command)
    overrides = [*(values.get("overrides") or ())]
    if values.get("start") is not None:
        overrides.append(f'model.from="{values["start"]}"')
    yield from _facts_of_recipe(load_recipe(name, overrides))


def _study_facts(values: Mapping[str, Any]) -> Iterator[str]:
    """Yields what the recipes of all variants do, and the tests of their scores."""
    names, seeds = (
        [part.strip() for part in values[key].split(",")] if values.get(key) else []
        for key in ("variants", "seeds")
    )
    overrides = values.get("overrides") or ()
    study = load_place(READ_STUDY)(values["name"], Path(), overrides=overrides, variants=names)
    for recipe in study.recipes.values():
        yield from _facts_of_recipe(recipe)
    if len(seeds or study.file.seeds) > 1:
        yield "several_seeds"


def _facts_of_recipe(recipe: Any) -> Iterator[str]:  # noqa: ANN401 - imported late
    from tformer_cli.kinds import training_of

    yield from ("model", "training")
    examples, row = training_of(recipe).examples, TASKS[recipe.task.kind]
    if examples.are_translated or (row.has_labels and not row.at_places and examples.are_texts):
        yield "are_resampled"
    for table in fields(recipe):
        if table.name != "distillation":
            yield from _facts_of(getattr(recipe, table.name), f"{table.name}.")


def _facts_of(values: Any, prefix: str) -> Iterator[str]:  # noqa: ANN401 - settings of any kind
    """Yields ``NAME=VALUE`` of words, and the name of all that is not switched off."""
    named = values if isinstance(values, Mapping) else _fields_of(values)
    for name, value in named.items():
        if not value or value in ("none", _NEUTRAL.get(name)):
            continue
        yield f"{prefix}{name}"
        for part in value if isinstance(value, (list, tuple)) else [value]:
            word = part.value if isinstance(part, Enum) else part
            if isinstance(word, str):
                yield from (f"{prefix}{name}={piece.strip()}" for piece in word.split(","))


def _fields_of(values: Any) -> dict[str, Any]:  # noqa: ANN401
    if not is_dataclass(values):
        return {}
    return {entry.name: getattr(values, entry.name) for entry in fields(values)}
