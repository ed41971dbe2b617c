from types import SimpleNamespace

import pytest

from tformer_cli.trainer.profiling import OTHER, category_of


def event(*names):
    """An event called by those after it."""
    found = None
    for name in reversed(names):
        found = SimpleNamespace(name=name, cpu_parent=found)
    return found


@pytest.mark.parametrize(
    ("names", "category"),
    [
        (("aten::addmm",), "matrix products"),
        (("aten::mm", "AddmmBackward0"), "matrix products"),
        (("aten::_log_softmax",), "loss"),
        (("aten::_log_softmax_backward_data",), "loss"),
        (("aten::_softmax",), "attention"),
        (("aten::bmm",), "attention"),
        (("aten::_scaled_dot_product_attention_math",), "attention"),
        (("aten::native_layer_norm_backward",), "norms"),
        (("aten::random_",), "dropout and random numbers"),
        (("aten::_fused_adam_",), "optimizer and clipping"),
        (("aten::mul", "Optimizer.step"), "optimizer and clipping"),
        (("aten::baddbmm", "Optimizer.step"), "optimizer and clipping"),
        (("aten::copy_", "aten::_to_copy"), "copies and fills"),
        (("aten::add", "autograd::engine::evaluate_function: AddBackward0"), OTHER),
        (("aten::sum", "NllLossBackward0"), "loss"),
        (("waiting for data",), "waiting for data"),
    ],
)
def test_operators_belong_where_a_reader_expects_them(names, category):
    assert category_of(event(*names)) == category
