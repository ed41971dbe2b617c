"""What the machine's matrix products reach at the model's shapes, whoever asks for them."""

import statistics
import time

import torch
from job import read_job, write_answer
from torch.nn import functional

REPEATS = 9


def main():
    job = read_job()
    torch.set_num_threads(job.threads)
    answer = {"float32": measure(job, torch.float32), "bfloat16": measure(job, torch.bfloat16)}
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # oneDNN's products
    answer["float32, oneDNN"] = measure(job, torch.float32)
    answer["error"] = float32_error()
    write_answer(job, gflops=answer, version=f"torch {torch.__version__}")


def measure(job, dtype):
    """GFLOP/s over all products of a forward pass, each shape by its share of the work."""
    d, f, v = job.d_model, job.d_ff, job.vocab_size
    # an encoder layer has 4 products of d×d, a decoder layer 8; both have d×f and f×d
    counts = {(d, d): 12 * job.n_layers, (d, f): 2 * job.n_layers, (f, d): 2 * job.n_layers}
    counts[d, v] = 1
    seconds = sum(n * product_seconds(job, shape, dtype) for shape, n in counts.items())
    flops = sum(2 * job.tokens_per_batch * k * m * n for (k, m), n in counts.items())
    return flops / seconds / 1e9


def product_seconds(job, shape, dtype):
    """Median seconds of (tokens, k) times (k, m)."""
    left = torch.randn(job.tokens_per_batch, shape[0]).to(dtype)
    right = torch.randn(shape[1], shape[0]).to(dtype)
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        functional.linear(left, right)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[2:])


def float32_error():
    """Relative error of what was measured as float32; bfloat16 in disguise shows about 4e-3."""
    left, right = torch.randn(64, 256), torch.randn(256, 256)
    exact = left.double() @ right.double().T
    error = functional.linear(left, right).double() - exact
    return (error.abs().max() / exact.abs().max()).item()


if __name__ == "__main__":
    main()
