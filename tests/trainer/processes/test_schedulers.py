"""The examples for Slurm and Kubernetes in the guide: their commands train, and go on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.recipes import tiny_translator
from tests.test_documents import GUIDE, blocks_of
from tests.trainer.processes.test_agent import free_port

BLOCKS = blocks_of(GUIDE / "training.md")
(SCRIPT,) = (block.text for block in BLOCKS if "#SBATCH" in block.text)
(JOB_SET,) = (yaml.safe_load(block.text) for block in BLOCKS if block.language == "yaml")
STAND_INS = {
    "tformer": f'#!/bin/sh\nexec "{sys.executable}" -m tformer_cli "$@"\n',
    # A machine that fails ends the job with its status
    "srun": '#!/bin/sh\n"$@" & first=$!\n"$@"\nstatus=$?\nwait $first || exit\nexit $status\n',
    "scontrol": '#!/bin/sh\n[ "$*" = "show hostnames node[1-2]" ] && echo 127.0.0.1; echo node2\n',
}


def test_all_pods_of_the_job_set_meet_at_its_first():
    (job,) = JOB_SET["spec"]["replicatedJobs"]
    pods = job["template"]["spec"]
    (container,) = pods["template"]["spec"]["containers"]
    words = container["command"]
    values = dict(
        zip(words[words.index("--processes") :: 2], words[words.index("--processes") + 1 :: 2])
    )
    name = JOB_SET["metadata"]["name"]
    # https://jobset.sigs.k8s.io/docs/concepts: SET-JOB-NUMBER-POD.SET
    assert values["--meet"].partition(":")[0] == f"{name}-{job['name']}-0-0.{name}"
    assert int(values["--nodes"]) == pods["parallelism"] == pods["completions"]
    assert int(values["--processes"]) == container["resources"]["limits"]["nvidia.com/gpu"]
    # Both schedulers run the same command
    shared = words[: words.index("--processes")]
    assert f"srun {' '.join(shared)} --processes 8 --nodes" in SCRIPT


@pytest.mark.long
def test_the_script_trains_on_two_machines_and_goes_on(tmp_path):
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name, text in STAND_INS.items():
        (bin_folder / name).write_text(text)
        (bin_folder / name).chmod(0o755)
    make = tiny_translator(tmp_path, training={"max_steps": 20, "checkpoint_every": 10})
    (tmp_path / "my-recipe.toml").write_text(make().to_toml())
    assert SCRIPT.count("--processes 8") == SCRIPT.count(":29500") == 1
    script = SCRIPT.replace("--processes 8", "--processes 1 --device cpu")
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[3]),
        "PATH": f"{bin_folder}:{os.environ['PATH']}", "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "node[1-2]",
    }  # fmt: skip
    for steps in (20, 20):  # the second time there is nothing left to do
        done = subprocess.run(
            ["bash", "-c", script.replace(":29500", f":{free_port()}")],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        state = json.loads(
            (tmp_path / f"runs/mine/checkpoints/step-{steps:06}/state.json").read_text()
        )
        assert (state["step"], state["world_size"], state["is_finished"]) == (20, 2, True)
    assert "Traceback" not in done.stderr
