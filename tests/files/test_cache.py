import pytest

from tformer_cli.errors import ArtifactError
from tformer_cli.files.cache import as_named, cache_directory, remember_name


def test_the_cache_is_where_xdg_puts_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "tformer"


@pytest.mark.parametrize("given", [None, "", "relative/cache"])
def test_without_an_absolute_path_the_cache_is_in_the_home_directory(monkeypatch, tmp_path, given):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    if given is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", given)
    assert cache_directory() == tmp_path / ".cache" / "tformer"


def test_without_a_home_directory_the_variable_to_set_is_named(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("pathlib.Path.home", _no_home)
    with pytest.raises(ArtifactError, match="set XDG_CACHE_HOME"):
        cache_directory()


def test_a_model_in_the_cache_has_the_users_name_and_its_files_their_own():
    remember_name("/cache/models/12ab", "opus")
    assert as_named("/cache/models/12ab: is a classifier") == "opus: is a classifier"
    assert as_named("name /cache/models/12ab") == "name opus"
    damaged = "/cache/models/12ab/config.json: is not JSON"
    assert as_named(damaged) == damaged


def _no_home():
    raise RuntimeError("Could not determine home directory.")
