"""Lenses: the states of an earlier layer, read as if they were those of the last one.

The logit lens reads a decoder layer, or one of an encoder by itself; the DecoderLens reads an
encoder layer by letting the decoder attend to it (Langedijk et al. 2024, arXiv 2310.03686). Both
pass h_l through the final norm of its stack, which pre-norm models have: their residual stream is
not normalized, and neither the decoder nor the output has ever read such numbers.

In a post-norm model every layer speaks a language of its own. A map may translate it first:
h_l + W·h_l + b, with W and b the ridge regression of h_L - h_l on h_l over the tokens of a corpus.
Belrose et al. (2023, arXiv 2303.08112) train maps of the same form by gradients, so that the
output's distribution comes near the model's own; a regression has a closed form and serves an
encoder, too, which has no output, but also spends itself on directions that nothing reads.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from tformer_cli.artifacts.config_file import LENS
from tformer_cli.errors import ArtifactError
from tformer_cli.model.encoder_only import EncoderOnly
from tformer_cli.plugins.instruments.ablation import LARGEST_LOGITS, batch_of, to_device
from tformer_cli.plugins.instruments.lens_file import read_maps
from tformer_cli.plugins.instruments.observed import record_module, stacks_of
from tformer_cli.text.batching import Batch
from tformer_cli.text.tokenizer import PAD_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tformer_cli.heads.names import Inspected, Kind
    from tformer_cli.inspect.capture.maps import IdPair
    from tformer_cli.inspect.view import Subject
    from tformer_cli.plugins.instruments.lens_file import Maps

READS = 0.25
"""Least agreement with the model at which a lens reads a layer; below, its output is babble."""
RIDGE = 1e-3
"""λ of the regression, as a share of the mean variance of its inputs."""
HELD_OUT = 5
"""Every fifth line is not fitted to."""
BATCH_TOKENS = 1024


@dataclass(frozen=True)
class Lens:
    """Reads states of earlier layers; without maps as they are."""

    maps: Maps = field(default_factory=dict)
    agreement: Mapping[str, float] = field(default_factory=dict)
    """Share of held-out tokens that each layer, so read, predicts as the model does."""

    def read(self, model: Inspected, kind: Kind, layer: int, states: Tensor) -> Tensor:
        """Turns states (B, T, D) after a layer into the output that the last layer would give."""
        mapped = self.map_states(f"{kind}.{layer}", states)
        read: Tensor = stacks_of(model)[kind].final_norm(mapped)
        return read

    def map_states(self, name: str, states: Tensor) -> Tensor:
        """Applies the map of a layer to states (…, D); a layer without one stays unchanged."""
        if name not in self.maps:
            return states
        weight, bias = (tensor.to(states) for tensor in self.maps[name])
        return states + functional.linear(states, weight, bias)

    def hidden_states(
        self, model: Inspected, batch: Batch, kind: Kind, layer: int, states: Tensor
    ) -> Tensor:
        """Turns them into the states (B, T, D) that the model's output is compared with."""
        read = self.read(model, kind, layer, states)
        if kind == "dec":
            return read
        if isinstance(model, EncoderOnly):
            return model.predicting(read, mask_of(batch, read))
        return model.decode_hidden(batch.target_input, read, batch.source_mask)


UNTUNED = Lens()


def mask_of(batch: Batch, states: Tensor) -> Tensor:
    """(B, S) True where an encoder has the state of a token; a class token precedes all patches."""
    mask = batch.source_mask
    return mask if mask.shape == states.shape[:2] else states.new_ones(states.shape[:2]).bool()


def states_of(model: Inspected, batch: Batch) -> tuple[Tensor, dict[Kind, list[Tensor]]]:
    """Runs a batch: the last hidden states, and what enters and leaves each layer of each stack."""
    with ExitStack() as hooks:
        records = {
            kind: [record_module(hooks, layer) for layer in stack.layers]
            for kind, stack in stacks_of(model).items()
        }
        hidden = model.target_hidden(batch.source, batch.source_mask, batch.target_input)
    states: dict[Kind, list[Tensor]] = {}
    for kind, layers in records.items():
        after = [layer.output for layer in layers if layer.output is not None]
        states[kind] = [layers[0].inputs[0], *after]
    return hidden, states


def single(model: Inspected, source_ids: Sequence[int], target_input_ids: Sequence[int]) -> Batch:
    """Makes a batch of one sentence, of the ids that the model reads."""
    device = next(model.parameters()).device
    source, target = (
        torch.tensor([ids], dtype=torch.long, device=device)
        for ids in (source_ids, target_input_ids)
    )
    return Batch(source, torch.ones_like(source, dtype=torch.bool), target, target)


def read_layers(
    model: Inspected,
    batch: Batch,
    kind: Kind,
    lens: Lens = UNTUNED,
    project: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Computes the logits (B, T, V) of a batch, and a lens's logits of each layer."""
    project = project or model.project
    hidden, states = states_of(model, batch)
    return project(hidden), [
        project(lens.hidden_states(model, batch, kind, layer, layer_states))
        for layer, layer_states in enumerate(states[kind][1:])
    ]


def batches(model: Inspected, pairs: Sequence[IdPair]) -> Iterator[tuple[list[int], Batch]]:
    """Pads pairs of like lengths together, with their numbers."""
    device = next(model.parameters()).device
    # The last token of a text is read only if another follows it, also where texts continue
    ends = not isinstance(model, EncoderOnly)
    order = sorted(range(len(pairs)), key=lambda n: (max(map(len, pairs[n])), n), reverse=True)
    while order:
        longest = max(map(len, pairs[order[0]])) + 2
        numbers = order[: max(1, BATCH_TOKENS // longest)]
        del order[: len(numbers)]
        yield numbers, to_device(batch_of(model, [pairs[n] for n in numbers], ends=ends), device)


def weights_hash(model: Inspected) -> str:
    """Returns the SHA-256 of all weights as they are loaded, an adapter's with them."""
    digest = sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()


def lens_of(subject: Subject, *, tuned: bool = True) -> Lens:
    """Reads the lens that is stored with a model; without maps if it is not to be tuned."""
    if subject.path is None:
        return UNTUNED
    key = ("lens", tuned)
    if key not in subject.cached:  # all weights are hashed for it, and sentences are many
        subject.cached[key] = stored_lens(subject.path, subject.model, tuned=tuned)
    lens: Lens = subject.cached[key]
    return lens


def stored_lens(path: Path, model: Inspected, *, tuned: bool = True) -> Lens:
    """Reads the lens of a model directory; one that was not fitted has no maps."""
    maps = read_maps(path)
    if maps is None:
        return UNTUNED
    widths = {len(bias) for _, bias in maps.maps.values()}
    if maps.weights != weights_hash(model) or widths != {model.config.d_model}:
        if not tuned:  # how well it reads is not known of these weights
            return UNTUNED
        raise ArtifactError.of(
            "{}: its maps were fitted to other weights; run `tformer inspect-layers "
            "{} --tune FILE` again, or add {untuned}, as with {adapter}",
            path / LENS,
            path,
        )
    way = "tuned" if tuned else "untuned"
    agreement = {name: shares[way] for name, shares in maps.agreement.items()}
    return Lens(maps.maps if tuned else {}, agreement)


@dataclass(frozen=True, kw_only=True)
class FittedLayer:
    """One layer's map on lines that it was not fitted to."""

    name: str  # Such as enc.0
    untuned: float  # Share of tokens predicted as by the model, without the map
    tuned: float
    explained: float  # Share of the variance of the last layer's states that the map explains


@torch.inference_mode()
def fit_lens(
    model: Inspected,
    pairs: Sequence[IdPair],
    progress: Callable[[int], None] = lambda done: None,  # noqa: ARG005 - the default is silent
) -> tuple[Lens, list[FittedLayer]]:
    """Fits a map for each layer but the last, and measures it on every fifth pair."""
    held = list(pairs[HELD_OUT - 1 :: HELD_OUT])
    read = [pair for n, pair in enumerate(pairs) if n % HELD_OUT != HELD_OUT - 1]
    moments: dict[str, _Moments] = {}
    done = 0
    for numbers, batch in batches(model, read):
        _, states = states_of(model, batch)
        for name, earlier, last in _tokens(batch, states):
            if name not in moments:
                moments[name] = _Moments(earlier.shape[1])
            moments[name].add(earlier.double().cpu(), last.double().cpu())
        done += len(numbers)
        progress(done)
    maps = {name: sums.solve() for name, sums in moments.items()}
    measured = _measure_layers(model, held, Lens(maps), lambda n: progress(done + n))
    return Lens(maps, {layer.name: layer.tuned for layer in measured}), measured


def _tokens(
    batch: Batch, states: Mapping[Kind, Sequence[Tensor]]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yields the states (N, D) of tokens after each earlier layer, and after the last one."""
    for kind, (_, *layers) in states.items():
        # At the place of a padding the decoder reads no token
        mask = mask_of(batch, layers[0]) if kind == "enc" else batch.target_output != PAD_ID
        last = layers[-1][mask]
        for layer, layer_states in enumerate(layers[:-1]):
            yield f"{kind}.{layer}", layer_states[mask], last


class _Moments:
    """Sums over tokens that a ridge regression is solved with, so that no state is kept."""

    def __init__(self, width: int) -> None:
        self._n = 0
        # (D + 1, D + 1) of x and 1, and (D + 1, D) of those with y - x
        self._left = torch.zeros(width + 1, width + 1, dtype=torch.float64)
        self._right = torch.zeros(width + 1, width, dtype=torch.float64)

    def add(self, x: Tensor, y: Tensor) -> None:
        with_one = functional.pad(x, (0, 1), value=1.0)
        self._left += with_one.T @ with_one
        self._right += with_one.T @ (y - x)
        self._n += len(x)

    def solve(self) -> tuple[Tensor, Tensor]:
        """Solves min Σ |y - x - W·x - b|² + λ·|W|²; where y is x, W and b are exactly 0."""
        n = max(self._n, 1)
        mean, gap = self._left[-1, :-1] / n, self._right[-1] / n
        covariance = self._left[:-1, :-1] / n - torch.outer(mean, mean)
        shared = self._right[:-1] / n - torch.outer(mean, gap)
        unit = covariance.diagonal().mean().clamp(min=1e-12)
        ridge = RIDGE * unit * torch.eye(len(mean), dtype=torch.float64)
        weight = torch.linalg.solve(covariance + ridge, shared).T
        return weight.float(), (gap - weight @ mean).float()


class _Score:
    """Sums over held-out tokens: equal predictions, and a map's errors."""

    def __init__(self, width: int) -> None:
        self._alike, self._n_predicted = torch.zeros(2), 0
        self._missed, self._n = 0.0, 0
        self._sums, self._squares = torch.zeros(width, dtype=torch.float64), 0.0

    def add_predictions(self, alike: Sequence[Tensor]) -> None:
        self._alike += torch.stack([matches.sum() for matches in alike]).cpu()
        self._n_predicted += len(alike[0])

    def add_states(self, mapped: Tensor, last: Tensor) -> None:
        last = last.double()
        self._missed += (last - mapped.double()).square().sum().item()
        self._squares += last.square().sum().item()
        self._sums += last.sum(dim=0).cpu()
        self._n += len(last)

    def layer(self, name: str) -> FittedLayer:
        untuned, tuned = (self._alike / max(self._n_predicted, 1)).tolist()
        variance = self._squares - self._sums.square().sum().item() / max(self._n, 1)
        explained = 1 - self._missed / max(variance, 1e-12)
        return FittedLayer(name=name, untuned=untuned, tuned=tuned, explained=explained)


def _measure_layers(
    model: Inspected, pairs: Sequence[IdPair], lens: Lens, progress: Callable[[int], None]
) -> list[FittedLayer]:
    scores = {name: _Score(len(bias)) for name, (_, bias) in lens.maps.items()}
    done = 0
    for numbers, batch in batches(model, pairs):
        hidden, states = states_of(model, batch)
        predicted = _predict_tokens(model, hidden)
        is_token = torch.ones_like(predicted, dtype=torch.bool)  # one label of a whole text
        for mask in (batch.target_output != PAD_ID, batch.source_mask):
            if mask.shape == predicted.shape:
                is_token = mask
                break
        for name, earlier, last in _tokens(batch, states):
            kind, layer = _place(name)
            alike = []
            for layer_lens in (UNTUNED, lens):
                read = layer_lens.hidden_states(model, batch, kind, layer, states[kind][layer + 1])
                alike.append((_predict_tokens(model, read) == predicted)[is_token])
            scores[name].add_predictions(alike)
            scores[name].add_states(lens.map_states(name, earlier), last)
        done += len(numbers)
        progress(done)
    return [score.layer(name) for name, score in scores.items()]


def _predict_tokens(model: Inspected, hidden: Tensor) -> Tensor:
    """(B, T) argmax tokens of states (B, T, D), computed in chunks to save memory."""
    n_rows = max(1, LARGEST_LOGITS // len(model.output_matrix))
    chunks = torch.split(hidden.flatten(0, 1), n_rows)
    return torch.cat([model.project(rows).argmax(dim=1) for rows in chunks]).view(hidden.shape[:2])


def _place(name: str) -> tuple[Kind, int]:
    kind, layer = name.split(".")
    return ("enc" if kind == "enc" else "dec"), int(layer)
