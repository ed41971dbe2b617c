import re

import numpy as np
import pytest

from tformer_cli.artifacts.config_file import FREQUENCIES
from tformer_cli.artifacts.shortlist_file import load_frequencies, load_seen_words, save_frequencies
from tformer_cli.errors import ArtifactError


def test_saved_values_are_loaded(tmp_path):
    assert load_frequencies(tmp_path, 3) is None
    save_frequencies(tmp_path, np.array([0, 5, 1 << 40]))
    assert load_frequencies(tmp_path, 3).tolist() == [0, 5, 1 << 40]
    save_frequencies(tmp_path, np.zeros(3, dtype=np.int64))
    assert load_frequencies(tmp_path, 3) is None  # nothing was counted


def test_words_are_loaded_where_there_are_any(tmp_path):
    assert load_seen_words(tmp_path) is None
    save_frequencies(tmp_path, np.array([1]))
    assert load_seen_words(tmp_path) is None
    save_frequencies(tmp_path, np.array([1]), ["chat", "été"])
    assert load_seen_words(tmp_path) == {"chat", "été"}
    assert load_frequencies(tmp_path, 1).tolist() == [1]
    (tmp_path / FREQUENCIES).write_text('{"source":[1],"words":[1]}')
    with pytest.raises(ArtifactError, match="is not a list of strings; remove the file"):
        load_seen_words(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no token frequencies"),
        ("[1]", "holds no token frequencies"),
        ("{}", "holds no token frequencies"),
        ("[" * 100_000, "holds no token frequencies"),
        ('{"source":[1,2]}', "does not hold one count for each of 3 tokens"),
        ('{"source":[1,2,-1]}', "does not hold one count for each of 3 tokens"),
        ('{"source":[1,2,1e400]}', "does not hold one count for each of 3 tokens"),
        ('{"source":[1,2,true]}', "does not hold one count for each of 3 tokens"),
        ('{"source":"abc"}', "does not hold one count for each of 3 tokens"),
    ],
)
def test_a_damaged_file_is_an_error_of_one_line(tmp_path, text, message):
    (tmp_path / FREQUENCIES).write_text(text)
    with pytest.raises(ArtifactError, match=re.escape(f"{tmp_path / FREQUENCIES}: {message}; ")):
        load_frequencies(tmp_path, 3)
