import urllib.error
import urllib.request
from typing import get_args

import pytest
from sacrebleu.metrics.bleu import BLEU

from tformer_cli.errors import UsageError
from tformer_cli.metrics import scores
from tformer_cli.metrics.choices import Tokenization
from tformer_cli.metrics.scores import check_tokenizer


def test_every_choice_is_one_of_sacrebleus():
    assert set(get_args(Tokenization)) == BLEU.TOKENIZERS - {"spm"}  # an old name of flores101
    with pytest.raises(UsageError, match="--tokenize: must be one of none, zh, 13a"):
        check_tokenizer("made up")


@pytest.mark.parametrize("name", ["13a", "intl", "char", "zh", "none"])
def test_what_needs_nothing_is_there(name):
    check_tokenizer(name)


@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [
        ("ja-mecab", "MeCab", "ja"),
        ("ko-mecab", "mecab_ko", "ko"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, name, missing, extra):
    found = scores.find_spec
    monkeypatch.setattr(scores, "find_spec", lambda m: None if m == missing else found(m))
    with pytest.raises(UsageError) as refused:
        check_tokenizer(name)
    assert str(refused.value) == (
        f"--tokenize: {name} needs the package {missing}; "
        f"install it with pip install 'tformer[{extra}]'"
    )


def test_a_model_that_cannot_be_downloaded_may_be_stored_by_hand(monkeypatch, tmp_path):
    def offline(*args, **options):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(scores, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(urllib.request, "urlopen", offline)
    with pytest.raises(UsageError) as refused:
        check_tokenizer("flores200")
    path = tmp_path / "models" / "flores200sacrebleuspm"
    assert f"fetch https://tinyurl.com/flores200sacrebleuspm elsewhere and store it as {path}" in (
        str(refused.value)
    )
    path.write_bytes(b"a model")
    check_tokenizer("flores200")
