"""Encoders: a text or image in, a vector out; the other encoders are opened like them."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from tformer_cli.errors import UsageError
from tformer_cli.kinds.kind import Kind, LineComputation
from tformer_cli.runtime import has_fast

if TYPE_CHECKING:
    from tformer_cli.artifacts.config_file import TaskKind, Verb
    from tformer_cli.kinds.serving import Serving
    from tformer_cli.kinds.stored_model import Opened, Opening
    from tformer_cli.model.base import Model


class Embed(Kind):
    """An encoder by itself; only imports make these, no training does."""

    name: ClassVar[TaskKind] = "embed"
    verbs: ClassVar[tuple[Verb, ...]] = ("embed",)

    def open_model(self, opening: Opening) -> Opened:
        """Connects an encoder with the kernels where they can compute it, else with torch."""
        from tformer_cli.kinds.stored_model import DirectoryModel, Opened, choose_precision

        stored, weights, settings = opening.directory, opening.weights, opening.settings
        chosen = choose_precision(stored, settings.precision, opening.place)
        in_integers = chosen == "int8"
        is_fast = opening.place == "cpu" and chosen != "bfloat16" and has_fast()

        def load() -> Model:
            settings.prepare_torch()
            encoder = stored.encoder
            if in_integers and stored.weight_type != "int8":  # else they are its weights already
                from tformer_cli.fast.products import encode_in_integers, quantized_matrices

                # the caller that passes an opened directory may go on to use its model
                encoder = encoder if weights is not None else deepcopy(encoder)
                encode_in_integers(encoder, quantized_matrices(encoder.state_dict()))
            elif is_fast and not in_integers:  # packed matrices are faster, to the same bits
                from tformer_cli.fast.products import pack_layers

                pack_layers(encoder)
            return encoder

        directory = replace(stored, load=load)
        opened = Opened(directory=directory, place=opening.place, precision=chosen)
        if not (is_fast and opening.by_kernels) or weights is None:  # these read stored weights
            return opened
        from tformer_cli.fast.native_encoder import compiled_encoder
        from tformer_cli.search.pooled import LabelHead, TokenHead

        on_cpu = DirectoryModel(opened.directory, weights, in_integers=in_integers)
        compiled = compiled_encoder(on_cpu, settings.tell, settings.threads)
        if isinstance(compiled, str):  # the reason why they cannot
            return opened
        head: LabelHead | TokenHead | None = None  # vectors need none
        if stored.config.n_outputs:
            head = LabelHead(stored.config, on_cpu.head_arrays())
        elif stored.config.head == "tokens":
            head = TokenHead(stored.config, on_cpu.head_arrays())
        return replace(opened, compiled=compiled, head=head)

    def serving(self, opened: Opened, verb: Verb) -> Serving:
        from tformer_cli.kinds.serving import WholeLines

        return WholeLines(opened, verb, *self.line_computation(opened, verb))

    def line_computation(self, opened: Opened, verb: Verb) -> LineComputation:
        if verb != "embed":
            raise UsageError(f"{verb}: is not served")
        from tformer_cli.kinds.lines.embed import embed_texts
        from tformer_cli.model.methods import Pooling

        settings = {"pooling": Pooling, "unit_length": bool}
        return LineComputation(partial(embed_texts, opened), settings)


KIND = Embed()
