"""Images by their names: pictures, idx files, rows of numbers; whatever is wrong with them."""

import base64
import gzip
import io
import re
import struct
import subprocess
import sys
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image, ImageFile

from tformer_cli.errors import DataError, UsageError
from tformer_cli.show.png import png_of
from tformer_cli.text.images import decoding
from tformer_cli.text.images.decoding import Scaling, decode_image, scale_image
from tformer_cli.text.images.named import is_row, name_of_image, read_image
from tformer_cli.text.images.tokenizer import ImageTokenizer
from tformer_cli.text.tokenizer import parse_tokenizer
from tformer_cli.wording import installing

SIZE = (4, 3, 1)


def picture(mode="L", size=(3, 4), seed=0, **save):
    rng = np.random.default_rng(seed)
    bands = {"L": 1, "RGB": 3, "RGBA": 4, "LA": 2}[mode]
    values = rng.integers(0, 256, (size[1], size[0], bands), np.uint8)
    image = Image.fromarray(values[..., 0] if bands == 1 else values, mode)
    stream = io.BytesIO()
    image.save(stream, **{"format": "PNG", **save})
    return values, stream.getvalue()


def idx_bytes(array):
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def images(tmp_path):
    array = np.random.default_rng(1).integers(0, 256, (5, 4, 3), np.uint8)
    (tmp_path / "few.idx").write_bytes(idx_bytes(array))
    (tmp_path / "few.idx.gz").write_bytes(gzip.compress(idx_bytes(array)))
    return array


def test_an_array_is_a_name(tmp_path):
    for shape in ((4, 3), (4, 3, 1), (2, 5, 4)):
        array = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
        name = name_of_image(array, "it")
        assert np.array_equal(read_image(name, SIZE), array.reshape(*shape[:2], -1))
    assert name_of_image(tmp_path, "it") == str(tmp_path)
    for shape in ((3, 8, 8), (2, 2, 0), (4,), (1, 2, 3, 1)):
        with pytest.raises(TypeError, match="C at most 4"):
            name_of_image(np.zeros(shape, np.uint8), "it")
    for name, message in (
        ("data:2x2x1;base64,AAAA", "has 3 bytes, not 4"),
        ("data:2x2x1;base64,?", "is not base64"),
        ("data:0x2x1;base64,", "has 0 bytes, not 0"),
        ("data:2x2x9;base64,AAAA", "is not a picture"),
    ):
        with pytest.raises(DataError, match=message):
            read_image(name, SIZE)


def test_a_picture_is_its_pixels(tmp_path):
    for mode, bands in (("L", 1), ("RGB", 3)):
        values, content = picture(mode)
        (tmp_path / "a.png").write_bytes(content)
        assert np.array_equal(read_image(str(tmp_path / "a.png"), SIZE), values[..., :bands])
        inline = f"data:image/png;base64,{base64.b64encode(content).decode()}"
        assert np.array_equal(read_image(inline, SIZE), values)


def test_our_own_png_is_read_by_pillow():
    for channels in (1, 3):
        pixels = np.random.default_rng(3).integers(0, 256, (5, 7, channels), np.uint8)
        assert np.array_equal(decode_image(png_of(pixels), "a"), pixels)


def test_white_shows_through_and_sixteen_bits_become_eight(tmp_path):
    values, content = picture("RGBA")
    share = values[..., 3:] / 255
    expected = values[..., :3] * share + 255 * (1 - share)
    assert np.abs(decode_image(content, "a").astype(float) - expected).max() <= 1.0
    stream = io.BytesIO()
    deep = np.arange(0, 12 * 5000, 5000, dtype=np.uint16).reshape(4, 3)
    Image.fromarray(deep).save(stream, format="PNG")
    assert np.array_equal(decode_image(stream.getvalue(), "a")[..., 0], deep >> 8)


def test_a_photo_lies_as_its_camera_says():
    values, _ = picture("L")
    stream = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # turn to the right
    Image.fromarray(values[..., 0]).save(stream, format="PNG", exif=exif)
    assert np.array_equal(
        decode_image(stream.getvalue(), "a")[..., 0], np.rot90(values[..., 0], -1)
    )


def test_one_of_many(images, tmp_path):
    for name in ("few.idx", "few.idx.gz"):
        for number in (0, 4):
            found = read_image(f"{tmp_path / name}#{number}", SIZE)
            assert np.array_equal(found[..., 0], images[number])


def test_a_row_of_numbers_is_an_image():
    values = np.arange(12)
    for separator in (" ", ",", ", ", "\t", ";"):
        name = separator.join(map(str, values))
        assert is_row(name)
        assert np.array_equal(read_image(name, SIZE).ravel(), values)
    found = read_image(" ".join(map(str, [0, 1, 8, 15, 16] + [0] * 7)), SIZE, pixel_max=16)
    assert found.ravel()[:5].tolist() == [0, 16, 128, 239, 255]
    assert not is_row("photos/1.png")
    assert not is_row("7")


def wrong_files(tmp_path):
    _, content = picture("RGB", (40, 40))
    jpeg = picture("RGB", (40, 40), format="JPEG")[1]
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    bomb = png_of(np.zeros((1, 1, 1), np.uint8))
    bomb = bomb.replace(
        bomb[12:33], b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    )
    return {
        "cut.png": (content[: len(content) // 2], "is damaged"),
        "cut.jpg": (jpeg[: len(jpeg) // 2], "is damaged"),
        "text.png": (b"hello, world", "is not a picture"),
        "empty.png": (b"", "is not a picture"),
        "bomb.png": (bomb, "pixels"),
        "broken.png": (content[:60] + b"x" * 40 + content[100:], "is damaged"),
    }


@pytest.mark.parametrize(
    "name", ["cut.png", "cut.jpg", "text.png", "empty.png", "bomb.png", "broken.png"]
)
def test_damaged_pictures_are_an_error_of_one_line(name, tmp_path):
    content, message = wrong_files(tmp_path)[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}: .*{message}") as caught:
        read_image(str(tmp_path / name), SIZE)
    assert "\n" not in str(caught.value)
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.png", "no.png: cannot be read"),
        ("few.idx", r"few.idx: holds many images; name one, such as .*few.idx#0"),
        ("few.idx#5", "there are 5 images, counted from 0"),
        ("0 1 2 3", r"0 1 2 3: has 4 values, but an image of 4×3 pixels and 1 channel has 12"),
        ("0 " * 11 + "300", r"value 12 is 300, and pixels are whole numbers from 0 to 255"),
        ("0 " * 11 + "0.5", "value 12 is 0.5"),
        ("0 " * 11 + "-1", "value 12 is -1"),
        ("0 " * 11 + "1-1", '"1-1" is not a pixel value'),
        ("data:image/png,abc", "is not written in base64"),
        ("data:image/png;base64,###", "is not base64"),
        ("a\0b", "cannot be read"),
    ],
)
def test_wrong_names_are_an_error_of_one_line(name, message, images, tmp_path):
    path = name if name[0] in "0da" else str(tmp_path / name)
    with pytest.raises(DataError, match=message):
        read_image(path, SIZE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0\0\x08", "is damaged or not an idx file"),
        (bytes((0, 0, 13, 3)) + b"\0" * 12, "is damaged or not an idx file"),
        (idx_bytes(np.zeros((2, 4, 3)))[:-1], "is truncated: its header promises 24 bytes"),
        (idx_bytes(np.zeros((2, 4, 3))) + b"\0", "is truncated: its header promises 24 bytes"),
        (bytes((0, 0, 8, 3)) + b"\xff" * 12, "its header promises .* bytes"),
        (idx_bytes(np.zeros(7)), r"has 1 dimensions of 7, .* is it the file of labels\?"),
    ],
)
def test_damaged_idx_files_are_an_error_of_one_line(content, message, tmp_path):
    (tmp_path / "bad.idx").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_image(f"{tmp_path / 'bad.idx'}#0", SIZE)


def test_other_sizes_are_refused_or_scaled_as_pillow_does():
    pixels = np.random.default_rng(5).integers(0, 256, (30, 50, 3), np.uint8)
    with pytest.raises(DataError, match="a: has 30×50 pixels, but images here have 8×8"):
        scale_image(pixels, Scaling(size=(8, 8, 3)), "a")
    image = Image.fromarray(pixels)
    found = scale_image(pixels, Scaling(size=(8, 6, 3), resize=(8, 6)), "a")
    assert np.array_equal(found, np.asarray(image.resize((6, 8), Image.Resampling.BILINEAR)))
    # the shorter side alone, then the middle: 30×50 -> 12×20 -> 8×8
    scaling = Scaling(size=(8, 8, 3), resize=(12,), resample="bicubic")
    expected = np.asarray(image.resize((20, 12), Image.Resampling.BICUBIC))[2:10, 6:14]
    assert np.array_equal(scale_image(pixels, scaling, "a"), expected)
    gray = scale_image(pixels, Scaling(size=(30, 50, 1)), "a")
    assert np.array_equal(gray[..., 0], np.asarray(image.convert("L")))
    assert np.array_equal(scale_image(gray, Scaling(size=(30, 50, 3)), "a"), np.repeat(gray, 3, 2))
    with pytest.raises(DataError, match="a: has 3 channels, and images here 2"):
        scale_image(pixels, Scaling(size=(30, 50, 2)), "a")


def test_an_image_of_the_models_size_is_scaled_and_cut_like_others():
    pixels = np.random.default_rng(5).integers(0, 256, (8, 8, 3), np.uint8)
    expected = np.asarray(Image.fromarray(pixels).resize((12, 12), Image.Resampling.BILINEAR))
    for resize in ((12,), (12, 12)):
        found = scale_image(pixels, Scaling(size=(8, 8, 3), resize=resize), "a")
        assert np.array_equal(found, expected[2:10, 2:10])


@pytest.mark.parametrize("size", [(1, 3000), (60_000, 1), (4, 100_000)])
@pytest.mark.parametrize("resample", ["bilinear", "bicubic"])
def test_thin_images_take_the_memory_of_the_result(size, resample):
    pixels = np.random.default_rng(5).integers(0, 256, (*size, 3), np.uint8)
    tracemalloc.start()
    found = scale_image(pixels, Scaling(size=(224, 224, 3), resize=(256,), resample=resample), "a")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2_000_000
    # the middle alone, scaled whole: borders differ, but they are far away
    along = int(size[1] > size[0])
    middle = size[along] // 2
    cut = [slice(None), slice(None)]
    cut[along] = slice(middle - 8 - middle % 2, middle + 8 + size[along] % 2 - middle % 2)
    part = pixels[tuple(cut)]
    n_rows, n_columns = (256 * side // min(size) for side in part.shape[:2])
    filters = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
    whole = np.asarray(Image.fromarray(part).resize((n_columns, n_rows), filters[resample]))
    top, left = (n_rows - 224) // 2, (n_columns - 224) // 2
    shift = np.abs(whole[top : top + 224, left : left + 224].astype(int) - found)
    assert shift.max() <= 1


def test_large_pictures_are_read_in_strips(monkeypatch):
    """Pixel by pixel what is read at once, of all kinds; a picture's copy is what memory holds."""
    for mode in ("L", "LA", "RGB", "RGBA"):
        _, content = picture(mode, (37, 53))
        at_once = decode_image(content, "a")
        monkeypatch.setattr(decoding, "_STRIP_PIXELS", 100)
        assert np.array_equal(decode_image(content, "a"), at_once)
        monkeypatch.undo()


def test_a_picture_with_too_many_pixels_is_refused(tmp_path):
    Image.new("1", (8_001, 10_000)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"a.png: has 8,001×10,000 pixels, more than 80,000,000"):
        read_image(str(tmp_path / "a.png"), SIZE)


@pytest.mark.long
def test_a_picture_at_the_limit_takes_less_than_a_gigabyte(tmp_path):
    Image.new("RGBA", (8_000, 10_000)).save(tmp_path / "a.png")
    code = (
        "import resource, sys; from tformer_cli.text.images.decoding import *\n"
        "pixels = decode_image(open(sys.argv[1], 'rb').read(), 'a')\n"
        "scale_image(pixels, Scaling(size=(224, 224, 3), resize=(256,)), 'a')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1_000_000  # KB


@pytest.mark.parametrize("resize", [(4, 4), (0, 9), (9, 9, 9), (9, 7)])
def test_impossible_scalings_are_refused(resize):
    with pytest.raises(ValueError, match="resize: "):
        Scaling(size=(8, 8, 1), resize=resize)


def test_the_tokenizer_has_an_id_for_every_byte_and_survives_its_file(images, tmp_path):
    scaling = Scaling(size=SIZE, resize=(4, 3))
    tokenizer = ImageTokenizer(scaling, 1, pixel_max=16)
    names = [f"{tmp_path / 'few.idx'}#{number}" for number in range(5)]
    ids = tokenizer.source.encode_batch([*names, " "])
    assert np.array_equal(np.array(ids[:5]) - 4, images.reshape(5, 12))
    assert ids[5] == []
    again = parse_tokenizer(tokenizer.to_json())
    assert isinstance(again, ImageTokenizer)
    assert again.to_json() == tokenizer.to_json()
    assert again.source.encode_batch(names) == ids[:5]
    assert (again.vocab_size, again.source.ids_per_token, again.source.ids_per_text) == (260, 1, 12)
    assert again.is_joint
    row = ImageTokenizer(scaling, 1)
    assert row.source.encode(row.target.decode(ids[0])) == ids[0]
    with pytest.raises(DataError, match="images have no words"):
        tokenizer.with_new_tokens(["<a>"])


@pytest.mark.parametrize(
    ("change", "value"),
    [("patch_size", 9), ("pixel_max", 0), ("tformer_tokenizer", 2), ("scaling", {}), ("more", 1)],
)
def test_a_damaged_file_of_a_tokenizer_is_refused(change, value):
    import json

    data = json.loads(ImageTokenizer(Scaling(size=SIZE), 1).to_json())
    with pytest.raises(DataError, match=r"tokenizer.json: is damaged"):
        parse_tokenizer(json.dumps({**data, change: value}))


def test_without_pillow_pictures_ask_for_it_and_idx_files_do_without(images, tmp_path, monkeypatch):
    _, content = picture()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match=re.escape(installing("images"))):
        decode_image(content, "a")
    with pytest.raises(DataError, match=r"^a text: is not a picture"):
        decode_image(b"a text", "a text")
    tokenizer = ImageTokenizer(Scaling(size=SIZE), 1)
    assert len(tokenizer.source.encode(f"{tmp_path / 'few.idx'}#0")) == 12
