from tformer_cli.training.checkpoints import Checkpoints


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
