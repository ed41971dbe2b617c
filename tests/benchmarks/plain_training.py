"""`tformer train` with every fast path of training replaced by the textbook's formula.

    python tests/benchmarks/plain_training.py RECIPE -o RUN [options of tformer train]

No compiled kernels; all logits at once under `log_softmax`; torch's dropout; attention by the plain
formula, over padded sentences; Adam parameter by parameter; products as torch makes them by
default. What is left is the oracle that
`loss_curves.py` compares the fast path with.
"""

import functools
import os
import sys
from pathlib import Path

from torch.nn import functional

import tformer_cli.model.attention
import tformer_cli.model.operations
import tformer_cli.trainer.gradients
import tformer_cli.trainer.optimizers.adam
from tformer_cli.cli.app import main
from tformer_cli.fast.native.library import SWITCH


def loss_of_all_logits(
    hidden, matrix, targets, label_smoothing, r_drop=0.0, operations=None, bias=None
):
    """All logits at once."""
    from tests.oracles.plain_loss import plain_loss, plain_r_drop_loss

    if r_drop:
        first, second = (functional.linear(hidden[number::2], matrix, bias) for number in (0, 1))
        return plain_r_drop_loss(first, second, targets, label_smoothing, r_drop)
    return plain_loss(functional.linear(hidden, matrix, bias), targets, label_smoothing)


def plain_dropout(values, rate):
    """One random number for each value."""
    return functional.dropout(values, rate)


def replace_fast_paths():
    """Puts the plain formulas in their place."""
    tformer_cli.trainer.gradients.projected_loss = loss_of_all_logits
    tformer_cli.model.operations.dropout = plain_dropout
    tformer_cli.model.attention.dropout = plain_dropout
    tformer_cli.model.attention.fused_attention = tformer_cli.model.attention.plain_attention
    tformer_cli.model.operations.has_exact_onednn = lambda: False
    tformer_cli.trainer.adam.adam = functools.partial(_one_by_one, tformer_cli.trainer.adam.adam)
    os.environ[SWITCH] = "0"


def _one_by_one(update, *arguments, **settings):
    update(*arguments, **{**settings, "fused": False, "foreach": False})


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    replace_fast_paths()
    main()
