import os
import threading

import pytest

from tformer_cli.errors import DataError, RecipeError
from tformer_cli.files.regular_file import MIB, read_bounded, read_regular
from tformer_cli.recipe import load_recipe
from tformer_cli.text.tokenizer import read_tokenizer


def test_a_file_is_read_whole_up_to_a_size(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a" * MIB)
    for read in (read_regular, read_bounded):
        assert read(path, MIB) == b"a" * MIB
        with pytest.raises(OSError, match="longer than 1,048,575 bytes"):
            read(path, MIB - 1)


def test_special_files_are_not_waited_for(tmp_path, spoil):
    with pytest.raises(OSError, match=spoil(tmp_path / "file")):
        read_regular(tmp_path / "file", 100 * MIB)


def test_a_named_pipe_is_read_and_a_device_not_forever(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[b"text"])
    writer.start()
    assert read_bounded(path, MIB) == b"text"
    writer.join()
    (tmp_path / "zero").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="longer than 1,048,576 bytes"):
        read_bounded(tmp_path / "zero", MIB)
    with pytest.raises(RecipeError, match="longer than 16,777,216 bytes"):
        load_recipe(str(tmp_path / "zero"))


def test_the_tokenizer_of_a_directory_is_an_ordinary_file(tmp_path, spoil):
    said = spoil(tmp_path / "tokenizer.json")
    with pytest.raises(DataError, match=f"cannot be read .{said}.; name a tokenizer"):
        read_tokenizer(tmp_path)
