"""Backward passes in forked processes that sum their gradients; a script for tests.

Arguments: pairs of a number of processes and a scenario, which are done one after the other.
Standard output gets a JSON list with an entry for each pair, itself a list with one for each
process, of digests of all gradients after each step.
"""

import hashlib
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch._dynamo  # DistributedDataParallel would import it in every process
import torch.distributed as dist

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.text.batching import collate
from tformer_cli.trainer import loss
from tformer_cli.trainer.gradients import BackwardPasses
from tformer_cli.trainer.hardware import compile_layers
from tformer_cli.trainer.memory import GradientsInMemory
from tformer_cli.trainer.processes.data_parallel import SummingPasses, share_of
from tformer_cli.trainer.report_interval import ReportInterval

N_PAIRS = 24


def make_model():
    torch.manual_seed(4)
    config = ModelConfig(
        d_model=32, n_heads=2, d_ff=48, n_encoder_layers=2, n_decoder_layers=2, dropout=0.0
    )
    return Transformer(config, 50)


def make_batches(n_pairs):
    torch.manual_seed(5)
    sides = [
        [torch.randint(4, 50, (int(n),)).tolist() for n in torch.randint(1, 9, (n_pairs,))]
        for _ in range(2)
    ]
    middle = (n_pairs + 1) // 2
    halves = [[side[:middle], side[middle:]] for side in sides]
    return [collate(sources, targets) for sources, targets in zip(*halves, strict=True) if sources]


def fail_once(model):
    """Lets the first backward pass run out of memory at a parameter in the middle."""
    middle = list(model.parameters())[len(list(model.parameters())) // 2]
    failures = []

    def fail(gradient):
        if not failures:
            failures.append(gradient)
            raise torch.OutOfMemoryError("CUDA out of memory")
        return gradient

    middle.register_hook(fail)


def work(rank, n, scenario):
    model = make_model()
    if scenario == "compiled":
        compile_layers(model, "eager")
        loss._compile_loss = lambda: loss._fusable_loss
    passes = SummingPasses(model, bucket_mb=0.01) if n > 1 else BackwardPasses()
    gradients = GradientsInMemory(passes)
    batches = make_batches(3 if scenario == "few" else N_PAIRS)
    if scenario == "memory" and rank == n - 1:
        fail_once(model)
    steps, parts = [], []
    n_sent = []
    restart = passes.start_again
    passes.start_again = lambda: (n_sent.append(len(passes._sent)), restart())
    for _ in range(3):
        model.zero_grad()
        own = share_of(batches, rank, n)
        total = sum(batch.n_target_tokens for batch in batches)
        parts.append(
            gradients.add(
                model,
                own,
                ReportInterval(0.0),
                label_smoothing=0.1,
                precision="float32",
                n_target_tokens=total,
            )
        )
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        digest = hashlib.sha256(flat.numpy().tobytes()).hexdigest()
        steps.append([digest, flat[:: len(flat) // 500].tolist()])
    return {"steps": steps, "parts": parts, "n_sent": n_sent}


def fork_processes(n, scenario):
    """What each of n processes finds."""
    with TemporaryDirectory() as directory:
        pids = []
        for rank in range(n):
            pid = os.fork()
            if not pid:
                if n > 1:
                    store = dist.FileStore(f"{directory}/store", n)
                    dist.init_process_group(
                        "gloo", store=store, rank=rank, world_size=n, timeout=timedelta(seconds=60)
                    )
                record = work(rank, n, scenario)
                Path(directory, str(rank)).write_text(json.dumps(record))
                if n > 1:
                    dist.barrier()
                os._exit(0)
            pids.append(pid)
        for pid in pids:
            assert os.waitpid(pid, 0)[1] == 0
        return [json.loads(Path(directory, str(rank)).read_text()) for rank in range(n)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    pairs = zip(sys.argv[1::2], sys.argv[2::2], strict=True)
    json.dump([fork_processes(int(n), scenario) for n, scenario in pairs], sys.stdout)
