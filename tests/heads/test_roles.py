import pytest

from tformer_cli.heads.roles import METRICS, ROLES, role_of


@pytest.mark.parametrize(
    ("metrics", "role"),
    [
        ({"prev": 0.51}, "previous"),
        ({"prev": 0.5, "self": 0.5}, "other"),
        ({"next": 0.3, "next_argmax": 0.9}, "next"),
        ({"next": 0.3, "next_argmax": 0.89}, "other"),
        ({"prev": 0.55, "sink_bos": 0.6}, "sink"),
        ({"prev": 0.55, "sink_bos": 0.59}, "previous"),
        ({"sink_eos": 0.6, "diagonality": 0.9, "confidence": 0.9}, "sink"),
        ({"diagonality": 0.5, "confidence": 0.51}, "aligner"),
        ({"diagonality": 0.0, "confidence": 1.0, "entropy_norm": 0.0}, "other"),
        ({"diagonality": 0.9, "confidence": 0.5, "entropy_norm": 0.9}, "broad"),
        ({"confidence": 0.9}, "other"),
        ({"entropy_norm": 0.78}, "broad"),
        ({"rare_argmax": 0.51, "entropy_norm": 0.77}, "rare"),
        ({"rare_argmax": 0.51, "entropy_norm": 0.78}, "broad"),
        ({"rare_argmax": 0.9, "self": 0.6}, "self"),
        ({"rare_argmax": 0.5}, "other"),
        ({}, "other"),
    ],
)
def test_a_role_follows_from_the_metrics(metrics, role):
    assert role_of(metrics) == role


def test_every_rule_names_its_source_and_metrics_that_exist():
    assert len({rule.role for rule in ROLES}) == len(ROLES) == 8
    for rule in ROLES:
        assert rule.source
        names = [word for word in rule.formula.replace(",", "").split() if "_" in word]
        assert set(names) <= set(METRICS)
