import pytest
import torch

from tformer_cli.model.runtime import (
    StandardProducts,
    autocast,
    has_fast_bfloat16,
    prepare_cpu,
    resolve_device,
    set_threads,
)


def test_devices_are_found_or_refused():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("gpu", "cpu:x", "cuda:x", ""):
        with pytest.raises(ValueError, match="must be auto, cpu, cuda or cuda:N"):
            resolve_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said():
    with pytest.raises(ValueError, match='"cuda:1" asks for a GPU, but CUDA is not usable'):
        resolve_device("cuda:1")


def test_threads_must_not_be_negative():
    with pytest.raises(ValueError, match="must be at least 0, but is -1"):
        set_threads(-1)


def test_float32_products_stay_exact_and_rows_do_not_depend_on_their_number():
    is_onednn = prepare_cpu()
    torch.manual_seed(0)
    left, right = torch.randn(100, 256), torch.randn(512, 256)
    product = torch.nn.functional.linear(left, right)
    exact = left.double() @ right.double().T
    assert ((product - exact).abs().max() / exact.abs().max()).item() < 1e-5
    if is_onednn:
        for n_rows in (2, 3, 7, 50):
            assert torch.equal(torch.nn.functional.linear(left[:n_rows], right), product[:n_rows])


def test_standard_products_are_put_back():
    prepare_cpu()
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    with StandardProducts():
        assert matmul.fp32_precision == "ieee"
    assert matmul.fp32_precision == before


def test_autocast_computes_products_in_bfloat16_only_when_asked():
    layer = torch.nn.Linear(8, 8)
    with autocast(torch.device("cpu"), "float32"):
        assert layer(torch.randn(2, 8)).dtype == torch.float32
    with autocast(torch.device("cpu"), "bfloat16"):
        assert layer(torch.randn(2, 8)).dtype == torch.bfloat16
    assert isinstance(has_fast_bfloat16("cpu"), bool)
