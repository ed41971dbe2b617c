""""""

import json
from hashlib import sha256

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load_file

from tformer_cli.errors import ArtifactError, DataError, TformerError, UsageError
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.reader import open_for_inspection
from tformer_cli.plugins.instruments.jobs import dump_heads
from tformer_cli.plugins.instruments.jobs.dump_heads import (
    NO_COLUMN,
    DumpedCorpus,
    DumpLayout,
    DumpSettings,
    HeadDumper,
    ShardArrays,
    largest,
)
from tformer_cli.text.tokenizer import EOS_ID

LINES = ["A man sleeps.", "", "Two dogs run in the snow.", "dog " * 80, "the street"] * 3


TARGETS = ["dogs run", "x", "A woman", "y", " "] * 3


@pytest.fixture(scope="module")
def opened(model):
    return open_for_inspection(model, device="cpu")


def corpus(lines=LINES, targets=None, origin="a"):
    return DumpedCorpus(
        lines=lambda: iter(lines),
        targets=None if targets is None else lambda: iter(targets),
        origin=origin,
    )


def write(opened, path, dumped, **settings):
    dumper = HeadDumper(opened, DumpSettings(**settings))
    seen = list(dumper.write(dumped, path))
    return dumper.report, seen


def read(path):
    """All shards as one list of (line, arrays, number in the shard)."""
    manifest = json.loads((path / "manifest.json").read_text())
    entries = []
    for shard in manifest["shards"]:
        file = path / shard["file"]
        assert sha256(file.read_bytes()).hexdigest() == shard["sha256"]
        assert file.stat().st_size == shard["bytes"]
        arrays = load_file(file)
        assert len(arrays["index"]) == shard["pairs"]
        entries += [(int(line), arrays, n) for n, line in enumerate(arrays["index"])]
    assert len(list(path.iterdir())) == len(manifest["shards"]) + 2
    return manifest, entries


def test_two_vocabularies_are_both_written(opened, foreign, tmp_path):
    two = open_for_inspection(foreign, device="cpu", source_language="eng", target_language="fra")
    sides = two.directory.tokenizer
    write(two, tmp_path / "two", corpus(["A man sees the house."]))
    write(opened, tmp_path / "one", corpus())
    for name, names in {
        "two": ("source-vocabulary.json", "vocabulary.json"),
        "one": ("vocabulary.json", "vocabulary.json"),
    }.items():
        path = tmp_path / name
        manifest = json.loads((path / "manifest.json").read_text())
        assert (manifest["source_vocabulary"], manifest["vocabulary"]) == names
    files = ("source-vocabulary.json", "vocabulary.json")
    labels = [json.loads((tmp_path / "two" / file).read_text()) for file in files]
    sizes = [side.vocab_size for side in (sides.source, sides.target)]
    assert [len(column) for column in labels] == sizes
    arrays = load_file(tmp_path / "two" / "part-00000.safetensors")
    expected = [*sides.source.encode("A man sees the house."), EOS_ID]
    assert [labels[0][i] for i in arrays["src_ids"]] == sides.source.pieces(expected)


def test_a_dump_holds_the_maps_of_inspect_heads(opened, model, tmp_path):
    report, seen = write(opened, tmp_path / "d", corpus(), shard_pairs=4)
    manifest, entries = read(tmp_path / "d")
    assert [line for line, _, _ in entries] == [0, 2, 4, 5, 7, 9, 10, 12, 14]
    assert (report.pairs, report.too_long, report.shards) == (9, 3, 3)
    assert seen[-1] == report.lines == manifest["items"] == 15
    assert manifest["is_complete"]
    assert manifest["heads"] == {
        "enc.0": [0, 1],
        "enc.1": [0, 1],
        "dec.0": [0, 1],
        "cross.0": [0, 1],
    }
    labels = json.loads((tmp_path / "d" / "vocabulary.json").read_text())
    for line, arrays, n in entries[:3]:
        record = next(inspect_heads(model, [LINES[line]]))
        maps = record.captured
        n_source, n_target = int(arrays["src_len"][n]), int(arrays["tgt_len"][n])
        start = int(arrays["src_len"][:n].sum())
        ids = arrays["src_ids"][start : start + n_source]
        assert tuple(labels[token] for token in ids) == record.source_pieces
        for kind, shape in [("dec", (n_target, n_target)), ("cross", (n_target, n_source))]:
            begin, end = arrays[f"{kind}.off"][n : n + 2]
            weights = arrays[f"{kind}.0.w"][:, begin:end].reshape(-1, *shape)
            assert_allclose(weights, maps.layers(kind)[0], atol=2**-11)
        assert abs(arrays["residual"][n]) <= 1e-5


def test_given_targets_and_chosen_heads_and_top_k(opened, tmp_path):
    report, _ = write(opened, tmp_path / "d", corpus(targets=TARGETS), top_k=2, heads=["cross.0.1"])
    manifest, entries = read(tmp_path / "d")
    assert [line for line, _, _ in entries] == [0, 2, 5, 7, 10, 12]  # a blank target is no pair
    assert (manifest["top_k"], manifest["heads"]) == (2, {"cross.0": [1]})
    _, arrays, _ = entries[0]
    assert arrays["cross.0.idx"].shape == arrays["cross.0.w"].shape
    n_rows = int(arrays["tgt_len"].sum())
    assert arrays["cross.0.w"].shape == (1, n_rows, 2)
    sums = arrays["cross.0.w"].astype(np.float32).sum(-1) + arrays["cross.0.rest"]
    assert_allclose(sums, 1, atol=2e-3)
    assert not any(name.startswith(("enc", "dec")) for name in arrays)
    assert report.residual < 1e-5


def test_the_estimate_is_exact_for_given_targets(opened, tmp_path):
    for settings in ({}, {"top_k": 2}, {"heads": ["cross", "enc.0.1"]}):
        dumper = HeadDumper(opened, DumpSettings(**settings))
        estimate = dumper.estimate(corpus(targets=TARGETS))
        path = tmp_path / str(len(settings) + bool(settings.get("top_k")))
        write(opened, path, corpus(targets=TARGETS), **settings)
        _, entries = read(path)
        arrays = entries[0][1]
        n_bytes = sum(array.nbytes for array in arrays.values())
        assert estimate.is_exact
        assert (estimate.lines, estimate.pairs) == (15, 6)
        assert n_bytes - estimate.n_bytes == 8 * len(dumper.layout.kinds)
    about = HeadDumper(opened).estimate(corpus())
    assert (about.is_exact, about.lines, about.pairs) == (False, 15, 9)


def files(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("targets", [None, TARGETS])
def test_a_dump_that_was_stopped_anywhere_ends_with_the_same_bytes(
    opened, tmp_path, targets, monkeypatch
):
    whole = tmp_path / "whole"
    write(opened, whole, corpus(targets=targets), shard_pairs=2)
    n_shards = len(files(whole)) - 2
    assert n_shards >= 3
    add = dump_heads.ShardDirectory.add
    resumed_at = []
    for stop in range(n_shards):

        def stopping(self, *arguments, stop=stop):
            if len(self.shards) == stop:
                raise KeyboardInterrupt
            add(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(dump_heads.ShardDirectory, "add", stopping)
            with pytest.raises(KeyboardInterrupt):
                write(opened, tmp_path / "d", corpus(targets=targets), shard_pairs=2)
        resumed_at.append(json.loads((tmp_path / "d" / "manifest.json").read_text())["items"])
    report, _ = write(opened, tmp_path / "d", corpus(targets=targets), shard_pairs=2)
    assert report.resumed_at == resumed_at[-1] > 0
    assert resumed_at == sorted(resumed_at)
    assert files(tmp_path / "d") == files(whole)
    again, seen = write(opened, tmp_path / "d", corpus(targets=targets), shard_pairs=2)
    assert (seen, again.resumed_at, again.pairs) == ([], again.lines, report.pairs)


@pytest.mark.parametrize(
    ("other", "settings", "name"),
    [({"origin": "b"}, {}, "input"), ({}, {"top_k": 1}, "settings"), ({}, {"heads": ["enc"]}, "")],
)
def test_a_dump_resumes_only_with_its_own_inputs(opened, tmp_path, other, settings, name):
    write(opened, tmp_path, corpus(LINES[:1]))
    with pytest.raises(ArtifactError, match=f"was started with a different {name}"):
        write(opened, tmp_path, corpus(LINES[:1], **other), **settings)


def test_the_limit_stops_the_dump_and_a_larger_one_resumes_it(opened, tmp_path):
    write(opened, tmp_path / "whole", corpus(), shard_pairs=2)
    shards = json.loads((tmp_path / "whole" / "manifest.json").read_text())["shards"]
    limit = sum(shard["bytes"] for shard in shards[:3]) - 1
    line = shards[2]["first_line"] + 1
    with pytest.raises(
        TformerError, match=rf"--max-bytes: .* from line {line} on; .* larger limit"
    ):
        write(opened, tmp_path / "d", corpus(), shard_pairs=2, max_bytes=limit)
    stopped = json.loads((tmp_path / "d" / "manifest.json").read_text())
    assert stopped["shards"] == shards[:2]
    write(opened, tmp_path / "d", corpus(), shard_pairs=2)
    assert files(tmp_path / "d") == files(tmp_path / "whole")


def test_shards_are_cut_by_bytes_too(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(dump_heads, "SHARD_BYTES", 1000)
    write(opened, tmp_path / "d", corpus(targets=TARGETS))
    manifest, entries = read(tmp_path / "d")
    assert len(manifest["shards"]) > 2
    for _, arrays, _ in entries:
        n_bytes = sum(array.nbytes for array in arrays.values())
        assert n_bytes <= 1000 + 24 or len(arrays["index"]) == 1
    assert [line for line, _, _ in entries] == [0, 2, 5, 7, 10, 12]


def test_the_tolerance_is_checked_before_a_shard_is_written(opened, tmp_path, monkeypatch):
    monkeypatch.setattr("tformer_cli.model.attention.FUSED_FROM_KEYS", 1)
    with pytest.raises(TformerError, match=r"line 1: residual .* exceeds --verify 1e-30"):
        write(opened, tmp_path / "d", corpus(LINES[:1]), tolerance=1e-30)
    assert not list((tmp_path / "d").glob("part-*"))


def test_impossible_dumps_are_refused(opened):
    with pytest.raises(DataError, match="no sentence fits the model"):
        HeadDumper(opened).estimate(corpus(["", " ", "dog " * 80]))
    with pytest.raises(DataError, match="the targets end before the other lines"):
        HeadDumper(opened).estimate(corpus(targets=["x"]))
    with pytest.raises(UsageError, match="conditions on metrics"):
        HeadDumper(opened, DumpSettings(heads=["@prev>0.5"]))
    with pytest.raises(ValueError, match="top_k: must be from 1 to 65534, but is 0"):
        DumpSettings(top_k=0)


HEADS = (HeadId("enc", 0, 1), HeadId("enc", 2, 0), HeadId("cross", 1, 0), HeadId("cross", 1, 1))


@pytest.fixture
def all_maps(make_record):
    sizes = [("abcd", "xy"), ("a", "xyz"), ("abcdef", "x")]
    return [make_record(tuple(source), tuple(target)).captured for source, target in sizes]


def fill_shard(layout, all_maps, order=(2, 0, 1)):
    lengths = [(len(maps.source_ids), len(maps.target_ids)) for maps in all_maps]
    shard = ShardArrays(layout, [3, 5, 6], lengths)
    for number in order:
        shard.add(number, all_maps[number])
    return shard.arrays


def test_dense_maps_come_back_in_half_precision(all_maps):
    arrays = fill_shard(DumpLayout(heads=HEADS), all_maps)
    assert arrays["index"].tolist() == [3, 5, 6]
    assert arrays["src_len"].tolist() == [5, 2, 7]
    assert arrays["tgt_len"].tolist() == [3, 4, 2]
    assert {n for n in arrays if n.endswith(".w")} == {"enc.0.w", "enc.2.w", "cross.1.w"}
    for number, maps in enumerate(all_maps):
        n_source, n_target = len(maps.source_ids), len(maps.target_ids)
        for head, place, shape in [
            (HEADS[0], 0, (n_source, n_source)),
            (HEADS[1], 0, (n_source, n_source)),
            (HEADS[2], 0, (n_target, n_source)),
            (HEADS[3], 1, (n_target, n_source)),
        ]:
            start, stop = arrays[f"{head.kind}.off"][number : number + 2]
            weights = arrays[f"{head.kind}.{head.layer}.w"][place, start:stop].reshape(shape)
            assert weights.dtype == np.float16
            assert_allclose(weights, maps.weights(head), atol=2**-12, rtol=0)
        assert arrays["residual"][number] == np.float32(maps.residual)
    tokens = [token for maps in all_maps for token in maps.target_ids]
    assert arrays["tgt_ids"].tolist() == tokens
    assert arrays["src_ids"][:5].tolist() == list(all_maps[0].source_ids)


def test_sparse_rows_hold_the_largest_weights_and_the_rest(all_maps):
    arrays = fill_shard(DumpLayout(heads=HEADS, top_k=3), all_maps)
    for number, maps in enumerate(all_maps):
        weights = maps.weights(HEADS[3])
        start, stop = arrays["cross.off"][number : number + 2]
        columns = arrays["cross.1.idx"][1, start:stop]
        top = arrays["cross.1.w"][1, start:stop].astype(np.float32)
        rest = arrays["cross.1.rest"][1, start:stop].astype(np.float32)
        assert stop - start == len(weights)
        assert columns.dtype == np.uint16
        for row, expected in enumerate(weights):
            k = min(3, len(expected))
            best = sorted(range(len(expected)), key=lambda j: -expected[j])[:k]
            assert columns[row, :k].tolist() == best
            assert_array_equal(columns[row, k:], NO_COLUMN)
            assert_allclose(top[row, :k], expected[best], atol=2**-12)
            assert_array_equal(top[row, k:], 0)
            assert_allclose(rest[row], 1 - expected[best].sum(), atol=1e-3)


def test_of_equal_weights_the_first_column_comes_first():
    columns, top, rest = largest(np.full((1, 1, 4), 0.25, np.float32), 2)
    assert columns.tolist() == [[[0, 1]]]
    assert top.tolist() == [[[0.25, 0.25]]]
    assert rest.tolist() == [[0.5]]


@pytest.mark.parametrize("top_k", [None, 1, 3])
def test_the_size_is_that_of_the_arrays(all_maps, top_k):
    layout = DumpLayout(heads=HEADS, top_k=top_k)
    arrays = fill_shard(layout, all_maps)
    expected = sum(layout.n_bytes(len(m.source_ids), len(m.target_ids)) for m in all_maps)
    ends_of_offsets = 8 * len(layout.kinds)
    assert sum(array.nbytes for array in arrays.values()) == expected + ends_of_offsets


def test_the_sizes_of_the_literature_s_base_model():
    heads = tuple(
        HeadId(kind, layer, head)
        for kind in ("enc", "dec", "cross")
        for layer in range(6)
        for head in range(8)
    )
    weights = DumpLayout(heads=heads).n_bytes(30, 30)
    assert weights == pytest.approx(2 * 129_600, rel=0.002)  # 144 heads of 30 x 30 in two bytes
    sparse = DumpLayout(heads=heads, top_k=3).n_bytes(30, 30)
    assert sparse == pytest.approx(144 * 30 * 14, rel=0.005)
