"""The records and models of the tests of inspect."""

from tests.inspect.cases import case  # noqa: F401
from tests.inspect.conftest import make_blank_record, make_model, make_record, record  # noqa: F401
