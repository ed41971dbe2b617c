""""""

import math
import re
from dataclasses import replace

import pytest
import torch

from tests.inspect import conftest
from tests.oracles.unpacked import page_data
from tformer_cli.errors import UsageError
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.capture.forced import capture_maps
from tformer_cli.inspect.pages import render_view
from tformer_cli.inspect.record import HeadsRecord, ModelSummary
from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.similarity import Similarity
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.observed import observe, place_of
from tformer_cli.plugins.instruments.views.step import VIEW, StepOptions
from tformer_cli.plugins.instruments.walkthrough.step import Subject, find_token
from tformer_cli.plugins.instruments.walkthrough.walkthrough import explain, walk_through
from tformer_cli.plugins.instruments.walkthrough.worksheet import (
    answer_key,
    has_weight,
    make_quiz,
    worksheet_places,
)

SOURCE, TARGET = (5, 9, 7, 11, 6, 8), (20, 24, 21)
"""Source and target share no token, and differ in length: a swap of either would show."""


HOSTILE = ("</style><script>x", "<!--", "<img src=x onerror=alert(1)>", '"', "\u2028", "\x00")


HEADS = [
    HeadId(*head)
    for head in (("enc", 0, 1), ("enc", 2, 3), ("dec", 0, 0), ("dec", 1, 2), ("cross", 1, 3))
]


def made_model(norm, *, even=False, **changes) -> Transformer:
    changes = {"max_positions": 300, "norm": norm, "tied_embeddings": "none"} | changes
    model = conftest.made_model(sharpness=0.0 if even else 3.0, noise=0.1, **changes)
    with torch.no_grad():
        for module in model.modules():
            if even and isinstance(module, MultiHeadAttention):
                module.in_projection.bias[:64].mul_(0.0)
    return model


@pytest.fixture(params=["post", "pre"])
def model(request):
    return made_model(request.param)


def subject_of(model, head, row, source=SOURCE, target=TARGET, labels=None) -> Subject:
    labels = labels or tuple(f"s{i}" if i < 20 else f"t{i}" for i in range(40))
    maps = capture_maps(model, source, target)
    sentence = HeadsRecord(
        index=0,
        model=ModelSummary(name="m", n_encoder_layers=3, n_decoder_layers=2, n_heads=4, step=1),
        source=" ".join(labels[i] for i in source),
        target=" ".join(labels[i] for i in target),
        is_forced=True,
        score=None,
        source_pieces=tuple(labels[i] for i in maps.source_ids),
        target_pieces=tuple(labels[i] for i in maps.target_ids),
        input_pieces=tuple(labels[i] for i in maps.target_input_ids),
        maps=maps,
        heads=(head,),
    )
    return Subject(sentence=sentence, head=head, row=row, output_labels=labels)


def observed_of(model, head):
    subject = subject_of(model, head, 2)
    (observed,) = observe(
        model, subject.sentence.maps.source_ids, (2, *TARGET), [(head.kind, head.layer)]
    )
    return subject, observed


def failing(record):
    """Numbers of the steps that are not what the model computed."""
    return {step.number for step in record.steps if (step.difference or 0) > 1e-4}


def check_rotary(record, config):
    first, _, scores = record.steps[:3]
    is_turned = record.head.kind != "cross"
    names = ["q_turned", "k_turned"] if is_turned else []
    assert [table.name for table in scores.tables] == [*names, "scores"]
    assert any("cos(p·ω_i)" in formula for formula in scores.formulas) == is_turned
    assert "PE" not in str(first)


def check_biased(record, config):
    scores, scaled = record.steps[2:4]
    has_bias = record.head.kind != "cross"
    assert ("b" in scaled.tables[0].columns) == ("b_j" in scaled.formulas[0]) == has_bias
    assert len(scaled.formulas) == (2 if has_bias else 1)
    adds_to_queries = has_bias and config.positions == "segments"
    assert ("q' = q + u, u learned" in scores.formulas) == adds_to_queries


def check_shared(record, config):
    place, first = f"{record.head.kind}.{record.head.layer}", record.head.head // 2 * 2
    says = f"Heads {place}.{first} to {place}.{first + 1} share keys and values."
    assert says in record.steps[1].says


def check_unprojected(record, config):
    shown = [line for step in record.steps for line in (*step.formulas, step.says)]
    assert not any("W_" in line for line in shown)
    assert record.steps[1].formulas[0] == "q = x"


def root_mean_square(record, config):
    shown = record.steps[0 if config.norm == "pre" else 9].formulas[-1]
    assert shown.startswith("RMS(")
    assert "LN(" not in str(record.steps)


def similar(formula, then, title="Not scaled"):
    def check(record, config):
        scores, scaled, softmax = record.steps[2:5]
        assert scores.formulas[-1] == formula
        expected = then if record.head.kind != "cross" else then.replace(" + b_j", "")
        assert (scaled.formulas[0], scaled.title) == (expected, title)
        assert "t_j" in softmax.formulas[0]

    return check


def check_embedding(formula):
    def check(record, config):
        if record.head.layer == 0:
            assert record.steps[0].formulas[0] == formula
        assert record.steps[11].formulas[0] == "l = h·Eᵀ" + (" + b" if config.output_bias else "")

    return check


def plain(record, config):
    checked = {step.number for step in record.steps if step.checks}
    assert checked >= {1, 2, 3, 4, 6, 7, 8, 9, 10, 11}
    assert (0 in checked) == (config.norm == "pre" or record.head in HEADS[:3:2])


VARIANTS = [
    ("post pre", {}, plain),
    ("post pre", {"positions": "rotary"}, check_rotary),
    ("post", {"positions": "relative"}, check_biased),
    ("post", {"positions": "alibi"}, check_biased),
    ("post", {"positions": "segments"}, check_biased),
    ("post", {"n_key_heads": 2, "positions": "rotary", "similarity": "distance"}, check_shared),
    ("pre", {"d_head": 5, "similarity": "dot", "positions": "relative", "norm_kind": "rms"},
     root_mean_square),
    ("post pre", {"projections": False}, check_unprojected),
    ("post pre", {"norm_kind": "rms", "gated": True, "embedding_norm": True}, root_mean_square),
    ("post", {"similarity": "dot"}, similar("s_j = q·k_j, not divided by √d_k", "s_j")),
    ("post", {"similarity": "cosine", "positions": "rotary"},
     similar("s_j = q'·k'_j = g·cos(q, k_j), g learned", "s_j")),
    ("post", {"similarity": "distance", "positions": "alibi"},
     similar("c_j = −|k_j|² / 2√d_k; the last term is that of all keys and changes no weight",
             "s_j / √d_k + c_j + b_j", "Divide by √d_k")),
    ("post", {"similarity": "additive", "positions": "relative"},
     similar("s_j = v·tanh(q + k_j) = Σ_i v_i·tanh(q_i + k_ji), v learned", "s_j + b_j")),
    ("post", {"embedding_norm": True, "output_bias": True},
     check_embedding("x = LN(√d_model · E[token] + PE(position))")),
    ("post", {"scale_embeddings": False, "positions": "table"},
     check_embedding("x = E[token] + PE(position)")),
    ("post", {"final_norm": "always", "positions": "rotary"},
     check_embedding("x = √d_model · E[token]")),
    ("post pre", {"decoder_cell": "ssru"}, plain),
]  # fmt: skip


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize(
    ("norm", "changes", "has_its_words"),
    [(norm, *rest) for norms, *rest in VARIANTS for norm in norms.split()],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_every_step_is_what_the_model_computed(norm, changes, has_its_words, head):
    if "decoder_cell" in changes and head.kind == "dec":
        return  # a recurrent unit is in its place
    model = made_model(norm, **changes)
    record = walk_through(model, subject_of(model, head, 2))
    assert [step.number for step in record.steps] == list(range(12))
    assert record.difference < 1e-5
    has_its_words(record, model.config)


@pytest.mark.parametrize("similarity", ["dot", "cosine", "distance", "additive"])
def test_a_similarity_that_is_not_the_models_fails_the_scores(similarity):
    model, head = made_model("post", similarity=similarity), HeadId("cross", 1, 3)
    subject, observed = observed_of(model, head)
    attention = model.decoder.layers[1].cross_attention
    attention.similarity = Similarity(4, attention.head_width)
    assert explain(model, subject, observed).difference > 1e-4


def test_a_turn_that_is_not_the_models_fails_the_scores():
    model, head = made_model("post", positions="rotary"), HeadId("enc", 0, 1)
    subject, observed = observed_of(model, head)
    tampered = explain(model, subject, replace(observed, key=observed.key.flip(1)))
    assert failing(tampered) == {2, 3}


def test_the_fused_path_is_explained_too(model):
    subject = subject_of(model, HeadId("cross", 0, 1), 1, source=SOURCE * 38)
    assert walk_through(model, subject).difference < 1e-5


def test_a_model_without_biases_has_formulas_without_them():
    config = ModelConfig(
        d_model=32, n_heads=4, d_ff=8, n_encoder_layers=1, n_decoder_layers=1, bias=False
    )
    torch.manual_seed(1)
    model = Transformer(config, 40).eval()
    record = walk_through(model, subject_of(model, HeadId("cross", 0, 1), 1))
    assert record.difference < 1e-5
    assert not any("b_" in formula for step in record.steps for formula in step.formulas)


@pytest.mark.parametrize(
    ("field", "steps"),
    [
        ("embedded", {0}),
        ("query", {1, 2, 3}),
        ("value", {1}),
        ("context", {6, 7}),
        ("joined", {8}),
        ("attended", {8}),
        ("summed", {9}),
        ("normed", {9}),
        ("logits", {11}),
    ],
)
def test_a_number_that_is_not_the_models_fails_its_step(field, steps):
    model, head = made_model("post"), HeadId("enc", 0, 1)
    subject, observed = observed_of(model, head)
    values = getattr(observed, field).clone()
    values[..., -1 if field == "logits" else 2, 1:] += 0.01
    if values.dim() == 3:
        values = getattr(observed, field) + 0.01
    tampered = explain(model, subject, replace(observed, **{field: values}))
    assert failing(tampered) == steps


def test_other_weights_than_the_models_fail_from_where_they_count():
    model, head = made_model("pre"), HeadId("dec", 1, 2)
    subject, observed = observed_of(model, head)
    with torch.no_grad():
        model.decoder.layers[1].self_attention.out_projection.weight[0, 3] += 0.5
    record = explain(model, subject, observed)
    assert failing(record) == {8, 9}


@pytest.mark.parametrize("field", ["stream", "entering", "inner", "output", "result"])
@pytest.mark.parametrize("head", HEADS[:3:2], ids=str)
def test_a_number_of_the_feed_forward_layer_that_is_not_the_models_fails_its_step(field, head):
    model = made_model("pre")
    subject, observed = observed_of(model, head)
    values = getattr(observed.feed_forward, field) + 0.01
    changed = replace(observed.feed_forward, **{field: values})
    # after the decoder's own attention comes cross-attention, and x is the model's own
    expected = {10}
    assert failing(explain(model, subject, replace(observed, feed_forward=changed))) == expected
    with torch.no_grad():
        place_of(model, head.kind, head.layer).layer.feed_forward.inner.bias += 0.5
    assert failing(explain(model, subject, observed)) == {10}


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_feed_forward_layer_is_that_of_torchs_encoder_layer(norm, activation):
    model = made_model(norm, activation=activation)
    layer, head = model.encoder.layers[1], HeadId("enc", 1, 2)
    subject, observed = observed_of(model, head)
    theirs = torch.nn.TransformerEncoderLayer(
        *(32, 4, layer.feed_forward.inner.out_features, 0.0, activation),
        batch_first=True,
        norm_first=norm == "pre",
    ).double()
    pairs = (
        (theirs.self_attn.in_proj_weight, layer.self_attention.in_projection.weight),
        (theirs.self_attn.in_proj_bias, layer.self_attention.in_projection.bias),
        *(
            (getattr(their_part, name), getattr(part, name))
            for their_part, part in (
                (theirs.self_attn.out_proj, layer.self_attention.out_projection),
                (theirs.linear1, layer.feed_forward.inner),
                (theirs.linear2, layer.feed_forward.outer),
                (theirs.norm1, layer.self_attention_norm),
                (theirs.norm2, layer.feed_forward_norm),
            )
            for name in ("weight", "bias")
        ),
    )
    with torch.no_grad():
        for their_values, values in pairs:
            their_values.copy_(values)
        expected = theirs(observed.stream[None])[0, 2]
    shown = explain(model, subject, observed).table("feed_forward")
    assert shown.rows[-1] == ("LN(r)" if norm == "post" else "r")
    torch.testing.assert_close(shown.values[-1], expected, atol=1e-9, rtol=0)


def test_a_gated_feed_forward_layer_with_root_mean_square_norms():
    changes = {"norm_kind": "rms", "gated": True, "activation": "swish", "bias": False}
    model, head = made_model("pre", even=False, **changes), HeadId("cross", 1, 3)
    layer = model.decoder.layers[1]
    record = walk_through(model, subject_of(model, head, 2))
    step, table = record.steps[10], record.table("feed_forward")
    assert step.formulas[1:3] == (
        "FFN(x) = (swish(x·W) ⊙ (x·W₁))·W₂",
        "swish(u) = u·σ(u) = u / (1 + e^(−u))",
    )
    norm = torch.nn.RMSNorm(32, eps=layer.feed_forward_norm.eps).double()
    with torch.no_grad():
        norm.weight.copy_(layer.feed_forward_norm.weight)
        normed = norm(table.values[0])
        gate, inner, outer = (
            getattr(layer.feed_forward, name).weight.double() for name in ("gate", "inner", "outer")
        )
        product = torch.nn.SiLU()(gate @ normed) * (inner @ normed)
    assert table.rows == ("x", "x/√(mean(x²)+ε)", "γ", "RMS(x)", "FFN(RMS(x))", "r")
    torch.testing.assert_close(table.values[3], normed)
    torch.testing.assert_close(record.table("inner").values[-1], product)
    torch.testing.assert_close(table.values[-1], table.values[0] + outer @ product)


def test_the_norms_numbers_are_those_of_the_chosen_token(model):
    record = walk_through(model, subject_of(model, HEADS[1], 2))
    is_pre = model.config.is_pre_norm
    step, name = (record.steps[0], "input") if is_pre else (record.steps[9], "residual")
    before = record.table(name).values[0 if is_pre else 2]
    mean, variance = before.mean().item(), before.var(correction=0).item()
    assert f"Here μ = {mean:.4f}, the variance σ² = {variance:.4f} and √" in step.says
    of = "x" if is_pre else "r"
    assert record.table(name).rows[-4:] == (f"({of} − μ)/√(σ²+ε)", "γ", "β", f"LN({of})")


def test_keys_after_a_query_of_the_decoder_are_named_as_masked(model):
    record = walk_through(model, subject_of(model, HEADS[3], 1))
    says = "The query may not see the 2 keys after it, t24, t21, which are masked: −∞ before"
    assert says in record.steps[3].says
    table = record.table("scaled").values[:, -1], record.table("weights").values[:, -1]
    assert (table[0].isinf().tolist(), table[1].eq(0).tolist()) == ([False, False, True, True],) * 2
    assert "here it sees all" in walk_through(model, subject_of(model, HEADS[4], 1)).steps[3].says


def test_a_query_without_weights_attends_evenly_to_what_it_sees():
    model = made_model("post", even=True)
    for head, row, n_visible in ((HEADS[0], 2, 7), (HEADS[3], 2, 3), (HEADS[4], 2, 7)):
        table = walk_through(model, subject_of(model, head, row)).table("weights")
        expected = torch.full((n_visible,), 1 / n_visible, dtype=torch.float64)
        torch.testing.assert_close(table.values[:n_visible, 2], expected)
        assert (table.values[n_visible:, 0] == -math.inf).all()
        assert (table.values[n_visible:, 2] == 0).all()


def test_labels_say_which_side_each_number_is_of(model):
    source, read = [f"s{i}" for i in SOURCE] + ["s3"], ["s2", *(f"t{i}" for i in TARGET)]
    written = [*read[1:], "s3"]
    expected = {"enc": (source, source), "dec": (written, read), "cross": (written, source)}
    for head in HEADS:
        record = walk_through(model, subject_of(model, head, 2))
        rows, keys = expected[head.kind]
        asks = source[2] if head.kind == "enc" else read[2]
        assert record.table("q").rows == (asks,)
        assert list(record.table("k").rows) == list(record.table("weights").rows) == keys
        assert list(record.table("attention").rows) == rows
        assert record.table("attention").columns == tuple(keys)
        assert record.token == rows[2]
        words, position = record.table("words"), 3 if head.kind == "enc" else 2
        assert words.rows[words.marked_row] == written[position]


def test_a_formula_by_hand():
    model, head = made_model("post"), HeadId("cross", 1, 3)
    record = walk_through(model, subject_of(model, head, 1))
    q, k = record.table("q").values[0].tolist(), record.table("k").values.tolist()
    scores = [sum(a * b for a, b in zip(q, key, strict=True)) / 8**0.5 for key in k]
    total = sum(math.exp(score) for score in scores)
    weights = record.table("weights").values[:, 2].tolist()
    assert weights == pytest.approx([math.exp(score) / total for score in scores])
    after = record.table("residual").values
    assert after[-1].tolist() == pytest.approx((after[3] * after[4] + after[5]).tolist())
    assert after[3].mean().item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_the_heaviest_key_that_is_seen_is_worked_out(model, head):
    subject = subject_of(model, head, 2)
    record = walk_through(model, subject)
    weights = record.table("weights").values[:, 2].tolist()
    assert record.key == max(range(len(weights)), key=weights.__getitem__)
    assert f"q·k({subject.keys[record.key]}) = " in record.steps[2].worked
    assert record.steps[4].worked.endswith(f" = {weights[record.key]:.3f}")
    for name in ("k", "v", "scores", "scaled", "weights", "weighted"):
        assert record.table(name).marked_row == record.key
    first = record.table("weighted").values[record.key, 0].item()
    assert record.steps[6].worked.startswith(f"z_0 = {first:.3f} + ")


def test_of_keys_as_heavy_the_first_is_worked_out_and_any_seen_one_can_be_named():
    model, head = made_model("post", even=True), HEADS[3]
    subject = subject_of(model, head, 2)
    assert walk_through(model, subject).key == 0
    record = walk_through(model, replace(subject, key=2))
    assert record.key == 2
    weighted = record.table("weighted").values[:, 0].tolist()
    terms = " + ".join(f"{weighted[key]:.3f}" for key in (2, 0, 1))  # key 3 is masked
    assert record.steps[6].worked == f"z_0 = {terms} = {sum(weighted):.3f}"
    with pytest.raises(ValueError, match="the query sees the keys 0 to 2, not 3"):
        walk_through(model, replace(subject, key=3))


@pytest.mark.parametrize("key", [None, 0, 3])
def test_no_blank_is_a_number_that_an_example_tells(model, key):
    record = walk_through(model, replace(subject_of(model, HEADS[1], 2), key=key))
    numbers = {
        float(number) for step in record.steps for number in re.findall(r"\d\.\d+", step.worked)
    }
    for seed in range(20):
        for blank in make_quiz(record, seed).blanks:
            row = record.table("weighted").rows[record.key]
            assert not (blank.step in (3, 4, 5) and f": {row}, " in blank.what)
            if blank.step in (3, 4):
                assert round(abs(blank.value), 3) not in numbers


def test_a_worksheet_hides_its_blanks_everywhere_and_the_same_seed_the_same_ones(model):
    # with the heaviest key worked out, no weight of a sharp head may be left to ask for
    record = walk_through(model, replace(subject_of(model, HEADS[1], 2), key=0))
    quiz = make_quiz(record, 7)
    assert quiz == make_quiz(record, 7) != make_quiz(record, 8)
    assert {blank.step for blank in quiz.blanks} >= {3, 4, 6, 9, 10}
    sheet = replace(record, quiz=quiz, with_answers=False)
    values = [
        v for s in VIEW.line(sheet)["steps"] for t in s["tables"] for r in t["values"] for v in r
    ]
    (walk,) = on_page(sheet)
    blanks = [number for s in walk["steps"] for t in s["tables"] for number in t["blanks"].values()]
    for blank in quiz.blanks:
        assert float(f"{blank.value:.6g}") not in values
        assert f"{blank.number}\t{blank.value:.3f}\tstep {blank.step}" in answer_key(sheet)
        assert blank.number in blanks
    assert not any("value" in blank for blank in walk["quiz"])
    (answered,) = on_page(replace(record, quiz=quiz))
    assert [blank["value"] for blank in answered["quiz"]] == pytest.approx(
        [blank.answer for blank in quiz.blanks]
    )
    masked = walk_through(model, subject_of(model, HEADS[3], 2))
    (walk,) = on_page(replace(masked, quiz=make_quiz(masked, 7)))
    hidden = [
        (i, j)
        for s in walk["steps"]
        for t in s["tables"]
        for i, row in enumerate(t["values"])
        for j, value in enumerate(row)
        if value is None and f"{i},{j}" not in t["blanks"]
    ]
    assert len(hidden) == 2  # one masked key, in two tables, and never a blank


def printed_tables(record):
    """The tables of a worksheet as a page prints them: numbers of three digits, blanks and all."""
    (walk,) = on_page(record)
    return {
        table["name"]: (
            [[None if v is None else float(f"{v:.3f}") for v in row] for row in table["values"]],
            {tuple(map(int, at.split(","))): n for at, n in table["blanks"].items()},
        )
        for step in walk["steps"]
        for table in step["tables"]
    }


def fill_in(tables, name, answers):
    """A table with the answers in its blanks, but for those of the table itself."""
    values, blanks = tables[name]
    rows = [list(row) for row in values]
    for (i, j), number in blanks.items():
        rows[i][j] = answers[number]
    return rows


@pytest.mark.parametrize("seed", range(12))
def test_a_pupil_who_computes_with_the_printed_digits_gets_the_answers(model, seed):
    sentence = replace(subject_of(model, HEADS[4], 1).sentence, heads=tuple(HEADS))
    record = walk_through(model, subject_of(model, *worksheet_places(sentence, None, "")[seed % 8]))
    sheet = replace(record, quiz=make_quiz(record, seed))
    tables, answers = printed_tables(sheet), {b.number: b.answer for b in sheet.hidden.blanks}
    solved = {
        name: fill_in(tables, name, answers)
        for name in ("scores", "v", "weights", "weighted", "z", "residual")
    }
    computed = {}
    for (i, j), number in tables["scaled"][1].items():
        if j == 1:
            computed[number] = solved["scores"][i][0] / round(8**0.5, 4)
    total = round(record.table("weights").values[:, 1].sum().item(), 3)  # told by its sentence
    for (i, j), number in tables["weights"][1].items():
        if j == 2:
            computed[number] = solved["weights"][i][1] / total
    for (i, j), number in tables["weighted"][1].items():
        computed[number] = solved["weights"][i][2] * solved["v"][i][j]
    for (_, j), number in tables["z"][1].items():
        computed[number] = sum(row[j] for row in solved["weighted"])
    for (i, j), number in tables["residual"][1].items():
        rows = solved["residual"]
        if i == 2:
            computed[number] = rows[0][j] + rows[1][j]
        elif i == 6:
            computed[number] = rows[3][j] * rows[4][j] + rows[5][j]
    for (i, j), number in tables["feed_forward"][1].items():
        rows = fill_in(tables, "feed_forward", answers)
        at = record.table("feed_forward").rows.index("r")
        if i == at:
            computed[number] = rows[0][j] + rows[at - 1][j]
    told = float(re.search(r"Σ e is (\d+\.\d{4})", record.steps[11].says)[1])
    for (i, _), number in tables["words"][1].items():
        computed[number] = tables["words"][0][i][1] / told
    assert set(computed) == set(answers)
    for number, value in computed.items():
        assert float(f"{value:.3f}") == pytest.approx(answers[number], abs=1e-9)
    assert any(blank.step == 4 for blank in sheet.hidden.blanks)
    assert all(
        abs(b.value) >= 0.05 and f"{b.value:.3f}" == f"{b.answer:.3f}"
        for b in sheet.hidden.blanks
        if b.step != 4
    )


def test_a_worksheet_has_at_most_eight_columns_a_table_and_what_to_do(model):
    record = walk_through(model, subject_of(model, HEADS[4], 1))
    (walk,) = on_page(replace(record, quiz=make_quiz(record, 3)))
    widths = {len(row) for s in walk["steps"] for t in s["tables"] for row in t["values"]}
    assert max(widths) == 8
    assert {t["width"] for s in walk["steps"] for t in s["tables"]} > {32}
    assert walk["instruction"].startswith(f"Fill in the {len(walk['quiz'])} numbered blanks.")
    assert not walk["is_whole"]


def test_a_row_with_one_weight_has_none_to_ask_for(model):
    record = walk_through(model, replace(subject_of(model, HEADS[1], 2)))
    weights = record.table("weights").values[:, 2].sort().values
    assert has_weight(replace(record, quiz=make_quiz(record, 1))) == (weights[-2] >= 0.005)


def test_a_worksheet_is_about_a_row_with_several_weights(model):
    sentence = replace(subject_of(model, HEADS[4], 1).sentence, heads=tuple(HEADS))
    (head, row), *others = worksheet_places(sentence, None, "")
    n_large = {
        (each, r): min(4, sum(sentence.captured.weights(each)[r] >= 0.05))
        for each, r in [(head, row), *others]
    }
    assert n_large[head, row] == max(n_large.values()) > min(n_large.values())
    assert (head, row) not in others
    assert len(set(others)) == len(others)
    assert {each for each, _ in worksheet_places(sentence, HEADS[0], "")} == {HEADS[0]}
    named = worksheet_places(sentence, None, "t24")
    assert {(each.kind, row) for each, row in named} == {("cross", 1), ("dec", 1)}
    with pytest.raises(UsageError, match="matches no token"):
        worksheet_places(sentence, None, "cat")


def page_of(record):
    return render_view(VIEW, [record], StepOptions(head="", token=""))


def on_page(record):
    return page_data(page_of(record))["sentences"][0]["views"]["step"]


def test_json_has_every_number_and_masked_cells_are_null(model):
    data = VIEW.line(walk_through(model, subject_of(model, HEADS[3], 1)))
    assert data["schema"] == "tformer.step/1"
    tables = {table["name"]: table for step in data["steps"] for table in step["tables"]}
    assert [row[1] is None for row in tables["scaled"]["values"]] == [False, False, True, True]
    shapes = {name: (len(t["values"]), len(t["values"][0])) for name, t in tables.items()}
    assert shapes["k"] == (4, 8)
    assert shapes["keys_input"] == (4, 32)
    assert shapes["attention"] == (4, 4)


def test_no_token_becomes_markup_and_nothing_is_fetched(model):
    tags = re.compile(r"</?[a-z][a-z0-9]*")
    labels = tuple(HOSTILE[i % len(HOSTILE)] for i in range(40))
    plain = page_of(walk_through(model, subject_of(model, HEADS[4], 1)))
    hostile = page_of(walk_through(model, subject_of(model, HEADS[4], 1, labels=labels)))
    assert tags.findall(plain) == tags.findall(hostile)
    assert plain.count("<script") == 2
    assert "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'" in plain
    assert not re.search(
        r"https?:|<\w[^>]*\ssrc\s*=", plain.replace("http://www.w3.org/2000/svg", "")
    )
    assert hostile == page_of(walk_through(model, subject_of(model, HEADS[4], 1, labels=labels)))


def test_a_page_of_its_own_has_every_component_and_details(model):
    record = walk_through(model, subject_of(model, HEADS[4], 1))
    (walk,) = on_page(record)
    assert walk["is_whole"]
    weight = record.sentence.captured.weights(record.head)[record.row, record.key].item()
    assert walk["weight"] == pytest.approx(weight, rel=1e-5)
    for step, shown in zip(record.steps, walk["steps"], strict=True):
        for table, table_data in zip(step.tables, shown["tables"], strict=True):
            assert len(table_data["values"]) == len(table.rows)
            assert {len(row) for row in table_data["values"]} == {table.values.shape[1]}
            assert table_data["is_detail"] == table.is_detail


PIECES = (
    "▁It",
    "▁ite",
    "m",
    "▁hit",
    "▁it",
    "'",
    "s",
    "▁it",
    ".",
    "▁2",
    "▁caf",
    "<0xC3>",
    "<0xA9>",
    "</s>",
)


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("it", 4),
        ("it#2", 7),
        ("It", 0),
        ("▁it", 4),
        ("item", 1),
        ("hit", 3),
        ("IT", 0),
        ("it's", 4),
        ("m", 2),
        (".", 8),
        ("2", 9),
        ("3", 3),
        ("-1", 13),
        ("café", 10),
        ("</s>", 13),
    ],
)
def test_a_token_is_found_by_word_piece_occurrence_or_position(wanted, place):
    assert find_token(wanted.replace("▁", " ") if wanted == "▁it" else wanted, PIECES) == place


@pytest.mark.parametrize("wanted", ["cat", "it#3", "14", "-15", "", " ", "#2"])
def test_another_is_refused_with_the_tokens_there_are(wanted):
    with pytest.raises(UsageError, match=r"matches no token; the tokens are 0 ▁It, 1 ▁ite, 2 m"):
        find_token(wanted, PIECES)
