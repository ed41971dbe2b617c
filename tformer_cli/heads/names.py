"""The names of heads: ``enc.L.H``, ``dec.L.H`` and ``cross.L.H``, counted from 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from tformer_cli.settings import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tformer_cli.model.attention import MultiHeadAttention
    from tformer_cli.model.config import ModelConfig
    from tformer_cli.model.encoder_only import Classifier, PositionPredictor
    from tformer_cli.model.transformer import Transformer

Inspected: TypeAlias = "Transformer | Classifier | PositionPredictor"
Kind = Literal["enc", "dec", "cross"]
KINDS: tuple[Kind, ...] = ("enc", "dec", "cross")
"""Encoder self-attention, the decoder's masked self-attention, cross-attention."""
CaptureMode = Literal["forced", "live"]  # One forced pass, or the rows of the search
KIND_NAMES: dict[Kind, str] = {
    "enc": "encoder self-attention",
    "dec": "decoder masked self-attention",
    "cross": "cross-attention",
}


class HeadId(NamedTuple):
    """One attention head of a model."""

    kind: Kind
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.kind}.{self.layer}.{self.head}"

    @property
    def data(self) -> dict[str, str | int | None]:
        """Its name and parts as JSON data; a layer has no head."""
        head = None if isinstance(self, LayerId) else self.head
        return {"id": str(self), "kind": self.kind, "layer": self.layer, "head": head}


class LayerId(HeadId):
    """A layer, for a map of all its heads together; `head` is 0 and not part of the name."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self.kind}.{self.layer}"


@dataclass(frozen=True)
class HeadLayout:
    """Numbers of heads of each layer of each kind; depths may differ, and so may layers."""

    enc: tuple[int, ...]  # Heads of each encoder layer
    dec: tuple[int, ...]  # Heads of each decoder layer's self-attention
    cross: tuple[int, ...]  # Heads of each decoder layer's cross-attention

    def of(self, kind: Kind) -> tuple[int, ...]:
        return {"enc": self.enc, "dec": self.dec, "cross": self.cross}[kind]

    def __iter__(self) -> Iterator[HeadId]:
        for kind in KINDS:
            for layer, n_heads in enumerate(self.of(kind)):
                yield from (HeadId(kind, layer, head) for head in range(n_heads))

    def __str__(self) -> str:
        return ", ".join(
            f"{kind}.0-{len(heads) - 1}.0-{max(heads) - 1}"
            for kind in KINDS
            if any(heads := self.of(kind))
        )


@dataclass(frozen=True)
class LayerLayout(HeadLayout):
    """The layers there are, each taken as one map; a layer without heads is one, too."""

    def __iter__(self) -> Iterator[HeadId]:
        return (LayerId(*head) for head in super().__iter__())

    def __str__(self) -> str:
        return ", ".join(
            f"{kind}.0-{len(layers) - 1}" for kind in KINDS if (layers := self.of(kind))
        )


def by_layer(heads: Iterable[HeadId]) -> dict[tuple[Kind, int], list[int]]:
    """The numbers of heads by their kind and layer."""
    heads_of: dict[tuple[Kind, int], list[int]] = {}
    for head in heads:
        heads_of.setdefault((head.kind, head.layer), []).append(head.head)
    return heads_of


def attentions(model: Inspected) -> Iterator[tuple[Kind, int, MultiHeadAttention]]:
    """Yields every attention of a model with its kind and layer; a recurrent unit is none."""
    from tformer_cli.model.encoder_only import EncoderOnly

    for index in range(model.config.n_encoder_layers):
        yield "enc", index, model.encoder.layers[index].self_attention
    if isinstance(model, EncoderOnly):
        return
    for index, decoder_layer in enumerate(model.decoder.layers):
        if decoder_layer.recurrence is None:
            yield "dec", index, decoder_layer.self_attention
        if model.config.n_encoder_layers:  # else there is no source to look at
            yield "cross", index, decoder_layer.cross_attention


def layout_of(config: ModelConfig) -> HeadLayout:
    """The same of a model that need not be made."""
    return HeadLayout(*config.layer_heads)


def head_layout(model: Inspected) -> HeadLayout:
    heads: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
    for kind, _, attention in attentions(model):
        heads[kind].append(attention.n_heads)
    return HeadLayout(tuple(heads["enc"]), tuple(heads["dec"]), tuple(heads["cross"]))


def layer_layout(model: Inspected) -> LayerLayout:
    layout = head_layout(model)
    return LayerLayout(*((1,) * len(layout.of(kind)) for kind in KINDS))
