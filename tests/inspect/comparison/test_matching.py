import pytest
import torch

from tformer_cli.heads.names import HeadId, HeadLayout
from tformer_cli.inspect.capture.forced import AttentionMaps
from tformer_cli.inspect.comparison.matching import HeadDistances, default_matching, match_heads


def one_hot(*keys):
    """(H, 3, 4) heads that look at one key alone."""
    weights = torch.zeros(len(keys), 3, 4)
    for head, key in enumerate(keys):
        weights[head, :, key] = 1.0
    return weights


def maps(*layers):
    return AttentionMaps(
        source_ids=(1, 2, 3), target_input_ids=(1,), enc=layers, dec=(), cross=(), residuals={}
    )


def matched(first, second, matching):
    layouts = [
        HeadLayout(tuple(len(layer) for layer in layers), (), ()) for layers in (first, second)
    ]
    distances = HeadDistances(*layouts, ["enc"])
    distances.add(maps(*first), maps(*second))
    return [
        (match.first and str(match.first), match.second and str(match.second), match.divergence)
        for match in match_heads(*layouts, distances, "enc", matching)
    ]


def test_heads_are_paired_by_where_they_look():
    found = matched([one_hot(0, 1, 2)], [one_hot(2, 0, 1)], "layer")
    assert found == [
        ("enc.0.0", "enc.0.1", 0.0),
        ("enc.0.1", "enc.0.2", 0.0),
        ("enc.0.2", "enc.0.0", 0.0),
    ]


def test_across_layers_a_head_finds_its_counterpart_and_within_them_it_does_not():
    first, second = [one_hot(0, 1), one_hot(2, 3)], [one_hot(2, 1), one_hot(0, 3)]
    across = matched(first, second, "kind")
    assert [pair[1] for pair in across] == ["enc.1.0", "enc.0.1", "enc.0.0", "enc.1.1"]
    assert [pair[2] for pair in across] == [0.0] * 4
    within = matched(first, second, "layer")
    assert [pair[:2] for pair in within] == [
        (f"enc.{n}", f"enc.{n}") for n in ("0.0", "0.1", "1.0", "1.1")
    ]
    assert [pair[2] for pair in within] == pytest.approx([0.6931, 0.0, 0.6931, 0.0], abs=1e-4)


@pytest.mark.parametrize("matching", ["layer", "kind"])
def test_of_heads_that_look_alike_those_of_one_name_pair(matching):
    alike = [one_hot(1, 1, 1), one_hot(1, 1)]
    assert all(first == second for first, second, _ in matched(alike, alike, matching))


def test_heads_without_a_counterpart_are_listed():
    fewer = matched([one_hot(0, 1, 2)], [one_hot(2, 0)], "layer")
    assert fewer == [
        ("enc.0.0", "enc.0.1", 0.0),
        ("enc.0.1", None, None),
        ("enc.0.2", "enc.0.0", 0.0),
    ]
    more = matched([one_hot(3)], [one_hot(2, 3), one_hot(0)], "kind")
    assert more == [("enc.0.0", "enc.0.1", 0.0), (None, "enc.0.0", None), (None, "enc.1.0", None)]


def test_a_moved_head_also_has_its_distance_from_its_namesake():
    layout = HeadLayout((2,), (), ())
    distances = HeadDistances(layout, layout, ["enc"])
    distances.add(maps(one_hot(0, 1)), maps(one_hot(1, 0)))
    match, _ = match_heads(layout, layout, distances, "enc", "layer")
    assert match.has_moved
    assert match.second == HeadId("enc", 0, 1)
    assert match.divergence_in_place == pytest.approx(0.6931, abs=1e-4)


def test_layers_are_kept_apart_where_both_models_have_as_many():
    layout = HeadLayout((4, 4), (4,), (4,))
    assert default_matching(layout, HeadLayout((2, 1), (0,), (3,))) == "layer"
    assert default_matching(layout, HeadLayout((4, 4, 4), (4,), (4,))) == "kind"
