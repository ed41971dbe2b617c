import pytest
import torch

from tformer_cli.errors import ArtifactError, UnreadableError
from tformer_cli.trainer.resuming.checkpoints import Checkpoints
from tformer_cli.trainer.resuming.state import TrainingState


def test_only_directories_named_by_a_step_are_checkpoints(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.steps() == []
    for name in ("step-000012", "step-1000000", "step-000002", "step-7", "step-x", "other"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-000099").write_text("somebody's file")
    assert checkpoints.steps() == [2, 12, 1000000]
    checkpoints.keep([12])
    assert checkpoints.steps() == [12]
    assert (tmp_path / "checkpoints" / "step-000099").read_text() == "somebody's file"


@pytest.mark.parametrize("name", ["state.json", "model.safetensors", "optimizer.safetensors"])
def test_what_is_no_ordinary_file_is_neither_read_nor_waited_for(tmp_path, spoil, name):
    checkpoints = Checkpoints(tmp_path)
    tensors = {"weight": torch.ones(2)}
    checkpoints.save(TrainingState(step=7), tensors, tensors)
    checkpoints.check(7)
    said = spoil(checkpoints.path(7) / name)
    if "longer" in said and name != "state.json":
        kind, said = ArtifactError, "is damaged or not a safetensors file"
    else:
        kind, said = UnreadableError, rf"cannot be read \({said}\); try again, or remove .*step-"
    with pytest.raises(kind, match=f"{name}: {said}"):
        checkpoints.load_tensors(7, torch.device("cpu"))
    assert not checkpoints.is_sound(7)
