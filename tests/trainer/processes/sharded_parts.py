"""Prints how much of a model each of two processes holds, as JSON; a script for tests.

For each process: numbers of the model, of its weights, gradients and moments after a step, and the
largest number of layers whose weights were whole at a time.
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed import TCPStore
from torch.distributed.tensor import DTensor

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.stacks import Layer
from tformer_cli.model.transformer import Transformer
from tformer_cli.text.batching import collate
from tformer_cli.trainer.config import TrainingConfig
from tformer_cli.trainer.gradients import add_gradients, clip_gradients
from tformer_cli.trainer.optimizers.optimizer import make_optimizer
from tformer_cli.trainer.processes.launch import Launch
from tformer_cli.trainer.processes.sharded import ShardedProcesses
from tformer_cli.trainer.report_interval import ReportInterval

CONFIG = ModelConfig(d_model=16, n_heads=2, d_ff=32, n_encoder_layers=3, n_decoder_layers=3)


def whole_layers(layers):
    return sum(not isinstance(next(layer.parameters()), DTensor) for layer in layers)


def hold(rank, port):
    store = TCPStore("127.0.0.1", port)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    launch = Launch(rank=rank, local_rank=rank, world_size=2, local_world_size=2)
    processes = ShardedProcesses(launch, store, torch.device("cpu"), shards_optimizer=False)
    torch.manual_seed(rank)
    model = Transformer(CONFIG, 20)
    n_numbers = sum(parameter.numel() for parameter in model.parameters())
    layers = [module for module in model.modules() if isinstance(module, Layer)]
    processes.shard(model)
    optimizer = make_optimizer(model, TrainingConfig(shard_weights=True))
    counts = []
    for layer in layers:
        layer.feed_forward.register_forward_hook(lambda *_: counts.append(whole_layers(layers)))
        layer.feed_forward.register_full_backward_hook(
            lambda *_: counts.append(whole_layers(layers))
        )
    batch = collate([[5, 6, 7], [8]], [[9], [10, 11, 12]], source_eos=True, target_eos=True)
    add_gradients(
        model,
        processes.share([batch]),
        ReportInterval(0.0),
        label_smoothing=0.1,
        precision="float32",
        n_target_tokens=batch.n_target_tokens,
        passes=processes.backward_passes(model),
    )
    clip_gradients(model, 1.0)
    optimizer.step()
    weights = [parameter.to_local() for parameter in model.parameters()]
    gradients = [parameter.grad.to_local() for parameter in model.parameters()]
    moments = [
        state[key].to_local()
        for state in optimizer.state.values()
        for key in state
        if key != "step"
    ]
    numbers = [sum(part.numel() for part in parts) for parts in (weights, gradients, moments)]
    dist.barrier()
    dist.destroy_process_group()
    return [n_numbers, *numbers, max(counts)]


if __name__ == "__main__":
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipes = [os.pipe() for _ in range(2)]
    for rank, (_, write) in enumerate(pipes):
        if not os.fork():
            os.write(write, json.dumps(hold(rank, server.port)).encode())
            os._exit(0)
    if any(os.wait()[1] for _ in pipes):
        sys.exit(1)
    json.dump([json.loads(os.read(read, 1000)) for read, _ in pipes], sys.stdout)
