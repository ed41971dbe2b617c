import errno
import fcntl
import subprocess
import sys

import pytest

from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import locked


def test_a_second_holder_is_refused_and_a_later_one_is_not(tmp_path):
    with (
        locked(tmp_path),
        pytest.raises(ArtifactError, match="another training process uses this directory"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        pass


def test_a_killed_holder_lets_go(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tformer_cli.files.atomic import locked\n"
        "with locked(Path(sys.argv[1])):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    died = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert died.returncode == -9
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_does_not_stop_a_training(tmp_path, monkeypatch, number):
    def flock(descriptor, operation):
        raise OSError(number, "no locks here")

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(tmp_path):
        pass
