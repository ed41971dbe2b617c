"""Every attention of a random Hugging Face Marian model with eager attention; no download."""

import numpy as np
import pytest
import torch

from tests.model.test_marian import pair  # noqa: F401 - the fixture
from tformer_cli.inspect.capture.forced import capture_batch, capture_maps
from tformer_cli.inspect.capture.live import RecordingModel
from tformer_cli.search.beam_search import beam_search
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.source_batches import source_batch

pytest.importorskip("transformers")

PAIRS = [((5, 9, 7, 11, 6), (20, 24, 21)), ((8, 4), (12, 13, 14, 15, 16, 17))]


@pytest.fixture(scope="module")
def models(pair):  # noqa: F811
    return pair[0].eval(), pair[1]


def check_equals_marian(theirs, maps):
    source = torch.tensor([maps.source_ids])
    with torch.no_grad():
        output = theirs(
            input_ids=source,
            attention_mask=torch.ones_like(source),
            decoder_input_ids=torch.tensor([maps.target_input_ids]),
            output_attentions=True,
        )
    for ours, expected in (
        (maps.enc, output.encoder_attentions),
        (maps.dec, output.decoder_attentions),
        (maps.cross, output.cross_attentions),
    ):
        assert len(ours) == len(expected) > 0
        for layer, their_layer in zip(ours, expected, strict=True):
            np.testing.assert_allclose(layer, their_layer[0], atol=1e-5, rtol=0)


def test_forced_maps_alone_and_in_a_batch(models):
    ours, theirs = models
    for source, target in PAIRS:
        check_equals_marian(theirs, capture_maps(ours, source, target))
    for maps in capture_batch(ours, PAIRS).maps():
        check_equals_marian(theirs, maps)


def test_live_maps_of_a_beam(models):
    ours, theirs = models
    recording = RecordingModel(ours)
    config = DecodingConfig(beam_size=4, n_best=4, max_length=9)
    sources = [source for source, _ in PAIRS]
    translations = beam_search(recording, *source_batch(sources, 32, "cpu"), config)
    for source, hypotheses in zip(sources, translations, strict=True):
        for hypothesis in hypotheses:
            check_equals_marian(theirs, recording.maps_of(source, hypothesis.token_ids))
