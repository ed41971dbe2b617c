"""Pairs of sentences in; the heads that keep their decisions out, of one model or of several."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Unpack

from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.errors import DataError, TformerError, UsageError
from tformer_cli.inspect.jobs.reader import InspectionOptions, open_for_inspection
from tformer_cli.kinds.stored_model import Opened
from tformer_cli.plugins.instruments.decisions.circuits import (
    PatchedPair,
    find_circuit,
    judge_circuit,
)
from tformer_cli.plugins.instruments.decisions.decision import DecidedAlike
from tformer_cli.plugins.instruments.jobs.decision import Decider
from tformer_cli.plugins.instruments.minimal_pairs import REPEATS, MinimalPair, minimal_pairs
from tformer_cli.plugins.instruments.views.circuit import (
    VIEW,
    CircuitHead,
    CircuitOptions,
    CircuitsRecord,
    ModelCircuit,
    NoCircuit,
)
from tformer_cli.search.hypothesis import never_interrupt
from tformer_cli.text.tokenizer import TokenizerSide
from tformer_cli.wording import count_of

BLOCK = 8  # Tokens that come twice
FEWEST = 10  # Pairs of a model, half of which judge: with fewer, an interval says little
PATIENCE = 100  # Draws for each pair: a tokenizer may cut some texts in other pieces


def inspect_circuit(
    models: Iterable[Path | str | ModelDirectory | Opened],
    pairs: str | Sequence[MinimalPair],
    *,
    name: str = "",
    settings: CircuitOptions | None = None,
    before_batch: Callable[[], None] = never_interrupt,
    **options: Unpack[InspectionOptions],
) -> CircuitsRecord:
    """Finds the fewest heads of each model that keep how pairs of sentences are decided.

    Pairs come from a built-in kind, or from a file, which has a name. An error in `before_batch`
    ends the computation before its next batch.
    """
    settings, seed = settings or CircuitOptions(), options.get("seed", 1)
    if not pairs:
        raise DataError(
            f"PAIRS: {name} has none; write SENTENCE and OTHER in each line, with a tab between"
        )
    circuits: list[ModelCircuit] = []
    failed: list[NoCircuit] = []
    examples: list[MinimalPair] = []
    for model in models:
        opened = open_for_inspection(model, tasks=VIEW.tasks, **options)
        decider = Decider(opened, before_batch)
        try:
            if isinstance(pairs, str):
                side = opened.directory.tokenizer.target
                chosen = drawn_pairs(pairs, settings.draw, side, seed)
            else:
                chosen = some_pairs(pairs, settings.draw, seed)
            examples.append(chosen[0])
            circuits.append(_circuit_of(decider, chosen, settings, seed))
        except (DataError, UsageError) as error:
            # The circuits of other models took minutes, and stand
            failed.append(NoCircuit(model=decider.subject.summary, reason=str(error)))
    if not circuits:
        raise DataError(failed[0].reason)
    return CircuitsRecord(
        pairs=pairs if isinstance(pairs, str) else name,
        example=examples[0],
        least=settings.faithfulness,
        models=tuple(circuits),
        failed=tuple(failed),
    )


def drawn_pairs(name: str, n_pairs: int, side: TokenizerSide, seed: int) -> list[MinimalPair]:
    """Draws pairs of a built-in kind."""
    return (
        repeated_pairs(side, n_pairs, seed)
        if name == REPEATS
        else minimal_pairs(name, n_pairs, seed)
    )


def some_pairs(pairs: Sequence[MinimalPair], n_pairs: int, seed: int) -> list[MinimalPair]:
    """Draws some of many pairs, which stay in their order."""
    roll = Random(seed).random
    ranks = [roll() for _ in pairs]
    drawn = sorted(range(len(pairs)), key=ranks.__getitem__)[:n_pairs]
    return [pairs[number] for number in sorted(drawn)]


def repeated_pairs(side: TokenizerSide, n_pairs: int, seed: int) -> list[MinimalPair]:
    """Draws random tokens that come twice, up to the one that is to be repeated.

    In the other text another token stands in the first copy there. All tokens differ, so that only
    the token after the earlier occurrence of the last one tells what comes next.
    """
    pieces = [place for place, piece in enumerate(side.piece_bytes) if piece.strip()]
    texts = side.decode_batch([[piece] for piece in pieces])
    # The decision names its tokens by words, and of " Bar" and "Bar" a word finds the first
    first_of = {piece: place for place, piece in reversed([*enumerate(side.piece_bytes)])}
    words = [text.strip().encode("utf-8", "replace") for text in texts]
    known = [
        piece
        for piece, word, again in zip(pieces, words, side.encode_batch(texts), strict=True)
        if again == [piece] == [first_of.get(b" " + word, first_of.get(word))]
    ]
    # Not `Random.choice`: Python guarantees only the stream of `random`
    roll, pairs = Random(seed).random, list[MinimalPair]()
    for _ in range(PATIENCE * n_pairs if len(known) > BLOCK else 0):
        tokens: list[int] = []
        while len(tokens) <= BLOCK:
            token = known[int(roll() * len(known))]
            tokens += [token] if token not in tokens else []
        *block, foil = tokens
        place = 1 + int(roll() * (BLOCK - 1))
        first = [*block, *block[:place]]
        both = [first, [*first[:place], foil, *first[place + 1 :]]]
        texts = side.decode_batch(both)
        if side.encode_batch(texts) == both:
            target, other = (side.decode([piece]).strip() for piece in (block[place], foil))
            pairs.append(
                MinimalPair(sentence=texts[0], other=texts[1], target=target, foil=other,
                            cause=(target, other))
            )  # fmt: skip
        if len(pairs) == n_pairs:
            return pairs
    raise DataError(
        f"PAIRS {REPEATS}: the tokenizer has too few pieces that stay the same next to others; "
        "give pairs in a file"
    )


def _circuit_of(
    decider: Decider, candidates: Sequence[MinimalPair], settings: CircuitOptions, seed: int
) -> ModelCircuit:
    pairs, refused = _decide(decider, candidates)
    # Every other pair, for kinds of pairs may come in any order
    chosen, held = pairs[::2], pairs[1::2]
    circuit = find_circuit(chosen, settings.faithfulness)
    reads = [pair.reads() for pair in chosen]
    heads = [
        CircuitHead(
            id=str(head),
            kind=head.kind,
            layer=head.layer,
            head=head.head,
            in_circuit=bool(circuit.kept[number]),
            without=1 - circuit.without[number],
            alone=circuit.alone[number],
            reads=_mean([pair_reads[number] for pair_reads in reads]),
        )
        for number, head in enumerate(chosen[0].heads)
    ]
    return ModelCircuit(
        model=decider.subject.summary,
        n_given=len(candidates),
        n_chosen=len(chosen),
        n_judged=len(held),
        heads=tuple(sorted(heads, key=lambda head: -head.cause)),
        curve=tuple(circuit.curve),
        verdict=judge_circuit(held, circuit.kept, seed),
        refused=tuple(refused),
    )


def _decide(decider: Decider, pairs: Sequence[MinimalPair]) -> tuple[list[PatchedPair], list[str]]:
    """Finds the decisions of pairs that the model makes as they say, and why it refuses others."""
    decided, refused = list[PatchedPair](), list[str]()
    for number, pair in enumerate(pairs, 1):
        try:
            words = pair.target or None, pair.foil or None
            records = decider.read((pair.sentence, pair.other))
            (first, second), *_ = decider.decide(records, *words)
        except DecidedAlike:
            continue
        except TformerError as error:  # Another word stands there, or one is misspelled
            reason = str(error).replace("--target", "TARGET").replace("--foil", "FOIL")
            refused.append(f"{f'line {pair.line}' if pair.line else f'pair {number}'}: {reason}")
        else:
            if first.d > 0 > second.d:
                decided.append(PatchedPair(first, second))
    if len(decided) < FEWEST:
        counts = f"{len(pairs) - len(decided) - len(refused)} decided for one word or in reverse"
        if refused:
            counts += f", {len(refused)} refused, such as {refused[0]}"
        raise DataError(
            f"PAIRS: {decider.subject.summary.name} decides {len(decided)} of "
            f"{count_of(len(pairs), 'pair')} as they say, but a circuit needs {FEWEST} ({counts}); "
            "give other pairs"
        )
    return decided, refused


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
