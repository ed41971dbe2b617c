import pytest

from tformer_cli.heads.names import KINDS
from tformer_cli.show.palette import color, hex_color


def lightness(channels):
    red, green, blue = channels
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("on_dark", [False, True])
def test_larger_weights_differ_ever_more_from_the_ground(kind, on_dark):
    steps = [lightness(color(kind, n / 50, on_dark=on_dark)) for n in range(51)]
    assert steps == sorted(steps, reverse=not on_dark)
    assert abs(steps[-1] - steps[0]) > 180


def test_weights_beyond_the_ends_take_the_colors_of_the_ends():
    assert hex_color("enc", -0.1) == "#ffffff"
    assert hex_color("enc", 1.2) == hex_color("enc", 1.0)
