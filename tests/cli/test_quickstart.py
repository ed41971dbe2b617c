from pathlib import Path

from tformer_cli.cli.quickstart import next_commands


def test_the_next_commands_name_the_run_and_the_page():
    lines = next_commands(Path("my/run"), Path("my/run/heads.html"))
    assert "my/run/heads.html" in lines[0]
    assert any("tformer translate my/run" in line for line in lines)
    assert any("tformer inspect-heads my/run" in line for line in lines)
