"""A device that is none: tensors that say they lie elsewhere, and are computed on the CPU.

What no GPU is needed to see is seen with it: that nothing of one device meets anything of another,
and where the host waits for the device. It is a backend of torch's for the whole process, so it is
for programs of their own:

    echo '[["translate", "MODEL", "-i", "FILE", "--device", "cuda"]]' |
        python tests/simulated_device.py

runs commands of `tformer`, whose "cuda" is this device, and prints of each its exit status, its
standard output and error, and [what, where, how often] was waited.
"""

import json
import sys
import traceback
from collections import Counter
from unittest.mock import Mock

import torch
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

WAITS = Counter()
"""How often (what, FILE:LINE of tformer) made the host wait for the device."""
READS_OF_VALUES = {"_local_scalar_dense", "nonzero", "equal", "masked_select", "tolist"}
"""Operators whose result the host can only have when the device is done."""
BY_INDEX = {"index", "index_put", "index_put_"}


class Backend(backend_registration._DummyBackendModule):
    def get_amp_supported_dtype(self):
        return [torch.bfloat16]


class ElsewhereTensor(torch.Tensor):
    """Wraps a tensor of the CPU and says that it lies on the device."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self):
        return f"ElsewhereTensor({self.inner})"

    def tolist(self):
        note_wait("tolist")
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        with Simulation():
            return func(*args, **(kwargs or {}))


class Simulation(TorchDispatchMode):
    """Computes on the CPU what is to be computed elsewhere, and watches."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        elsewhere = [x for x in tensors if isinstance(x, ElsewhereTensor)]
        here = [x for x in tensors if not isinstance(x, ElsewhereTensor) and x.dim() > 0]
        name = func._schema.name.removeprefix("aten::")
        kind = torch.device(kwargs["device"]).type if kwargs.get("device") is not None else None
        if name == "copy_":
            to_here = isinstance(args[1], ElsewhereTensor) > isinstance(args[0], ElsewhereTensor)
            if to_here and not (getattr(args[0], "is_pinned_here", False) and args[2:] == (True,)):
                note_wait(name)
        elif elsewhere and here:
            raise AssertionError(f"{name}: tensors of two devices meet")
        if elsewhere:
            by_truth = name in BY_INDEX and any(
                isinstance(x, torch.Tensor) and x.dtype == torch.bool for x in args[1]
            )
            by_truth |= name.startswith("index_put") and not isinstance(args[2], ElsewhereTensor)
            if name in READS_OF_VALUES or by_truth or (name == "_to_copy" and kind == "cpu"):
                note_wait(name)
        options = tree_map(inner, kwargs)
        is_pinned = options.pop("pin_memory", None)
        if kind == DEVICE.type:
            options["device"] = torch.device("cpu")
            if name == "_to_copy" and not (
                getattr(args[0], "is_pinned_here", False) and kwargs.get("non_blocking")
            ):
                note_wait("to the device")
        result = func(*tree_map(inner, args), **options)
        if name == "copy_":
            return args[0]
        if is_pinned and kind != DEVICE.type:
            result.is_pinned_here = True
        if kind == DEVICE.type or (elsewhere and kind != "cpu"):
            result = tree_map(
                lambda x: ElsewhereTensor(x) if isinstance(x, torch.Tensor) else x, result
            )
            return return_and_correct_aliasing(func, args, kwargs, result) if elsewhere else result
        return result


def inner(value):
    return value.inner if isinstance(value, ElsewhereTensor) else value


def note_wait(name):
    frames = [f for f in traceback.extract_stack() if "tformer_cli" in f.filename]
    where = "outside"
    if frames:
        where = f"{frames[-1].filename.split('tformer_cli/')[-1]}:{frames[-1].lineno}"
    WAITS[name, where] += 1


def prepare():
    """Makes torch and tformer know the device; call it before anything of torch is used."""
    backend_registration._setup_privateuseone_for_python_backend("simulated", Backend())
    tensor = torch.tensor
    # these look past what is dispatched in Python
    torch.tensor = lambda data, *, device=None, **options: (
        tensor(data, **options) if device is None else tensor(data, **options).to(device)
    )
    torch.inference_mode = lambda mode=True: torch.no_grad() if mode else torch.enable_grad()
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *_: None
    torch.cuda.Event = Mock

    from tformer_cli import runtime
    from tformer_cli.artifacts import model_directory, tensors
    from tformer_cli.trainer import hardware as training_device
    from tformer_cli.trainer.resuming import checkpoints

    load = tensors.load_tensors
    for module in (model_directory, checkpoints):  # safetensors does not know the device
        module.load_tensors = lambda path, device="cpu": {
            name: value.to(device) for name, value in load(path).items()
        }
    for module in (runtime, training_device):
        module.resolve_device = lambda name: torch.device("cpu") if name == "cpu" else DEVICE


DEVICE = torch.device("privateuseone", 0)

if __name__ == "__main__":
    prepare()
    from typer.testing import CliRunner

    from tformer_cli.cli.app import app

    ended = []
    for command in json.load(sys.stdin):
        WAITS.clear()
        with Simulation():
            done = CliRunner().invoke(app, command)
        waits = [[*key, n] for key, n in WAITS.most_common()]
        ended.append([done.exit_code, done.stdout, done.stderr, waits])
    sys.stdout.write(json.dumps(ended))
