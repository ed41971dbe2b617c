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
    if (device := job.options.get("device", "cpu")) != "cpu":
        torch.set_default_device(device)
    answer = {"float32": measure(job, torch.float32), "bfloat16": measure(job, torch.bfloat16)}
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # oneDNN's products
    answer["float32, oneDNN"] = measure(job, torch.float32)
    answer["error"] = float32_error()
    if device != "cpu":
        about = {"GPU": torch.cuda.get_device_name(), **gpu_limits()}
        write_answer(job, gflops=answer, version=f"torch {torch.__version__}", about=about)
        return
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
    times = [seconds_of(lambda: functional.linear(left, right)) for _ in range(REPEATS)]
    return statistics.median(times[2:])


def seconds_of(call, n=5):
    """Seconds of one call, of n on a GPU, whose host would be too late to measure one alone."""
    wait = torch.cuda.synchronize
    if torch.get_default_device().type == "cpu":
        n, wait = 1, int
    wait()
    begin = time.perf_counter()
    for _ in range(n):
        call()
    wait()
    return (time.perf_counter() - begin) / n


def gpu_limits():
    """Memory bandwidth in TB/s, and the host's microseconds to ask for one operator."""
    large, small = torch.empty(1 << 30, dtype=torch.uint8), torch.zeros(8)
    copies = [2 * large.numel() / seconds_of(large.clone) / 1e12 for _ in range(3)]
    return {"TB/s": copies[-1], "us an operator": 1e6 * seconds_of(lambda: small.add_(1.0), 5_000)}


def float32_error():
    """Relative error of what was measured as float32; bfloat16 in disguise shows about 4e-3."""
    left, right = torch.randn(64, 256), torch.randn(256, 256)
    exact = left.double() @ right.double().T
    error = functional.linear(left, right).double() - exact
    return (error.abs().max() / exact.abs().max()).item()


if __name__ == "__main__":
    main()
