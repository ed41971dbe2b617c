"""Models of every kind, made once for the tests of the service."""

import pytest

from tests.zoo import Zoo


@pytest.fixture(scope="session")
def zoo(tmp_path_factory):
    return Zoo(tmp_path_factory.mktemp("zoo"))
