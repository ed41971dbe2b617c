"""The models and sentences that the plain code is tested with: here they test what is fast."""

from tests.model.conftest import make_model, sentences
from tests.search.conftest import batch, random_model, repeatable_products, tabulated

__all__ = ["batch", "make_model", "random_model", "repeatable_products", "sentences", "tabulated"]
