"""The page's tokenizers in JavaScript give what tformer's tokenizers give, for every kind."""

import gzip
import io
import json
import os
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest
from sentencepiece import SentencePieceTrainer
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from tests.slowly import slowly
from tests.zoo import ENGLISH, FRENCH
from tformer_cli.errors import UsageError
from tformer_cli.foreign.import_model import import_model
from tformer_cli.plugins import page
from tformer_cli.plugins.page.tokenizer_json import page_tokenizer
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.foreign_pieces import (
    QWEN2_WORDS,
    BytePieceTokenizer,
    LibraryTokenizer,
    WordPieceTokenizer,
    WordRules,
)
from tformer_cli.text.pieces import PieceTokenizer
from tformer_cli.text.sentencepiece.spm_file import read_spm
from tformer_cli.text.sentencepiece.tokenizer import Languages, SentencePieceTokenizer
from tformer_cli.text.tokenizer import SPECIAL_PIECES, read_tokenizer
from tformer_cli.text.train_tokenizer import train_sides, train_tokenizer

ENGINE = Path(page.__file__).with_name("engine")
SPECIAL = list(SPECIAL_PIECES)
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs node")
HOSTILE = [
    "", " ", "   ", "\t", "\n", "a\n\nb", "\r\n x\r", "a  b", " a b ", "  lead", "trail  ",
    "\x00\x01\x1f\x7f\x85 x", "a\xa0b\u3000c\u2009d\u202fe", "a\u2028b\u2029c", "\ufeffx \ufeff",
    "e\u0301te\u0301 cafe\u0301", "\u0300\u0301", "\u1100\u1161\u11a8 한국어", "½ ﬁ ① ㎏ ﷺ Å",
    "👩‍👩‍👧‍👦 family 🇫🇷 ✌🏽", "\U0001d400\U00020000 \U0001f9ff", "שלום עולם", "مرحبا بالعالم، كيف",
    "\u202eabc\u202c", "日本語のテスト。中文", "ภาษาไทย", "x\u200by \u200b ก\u200bข", "नमस्ते க்ஷ",
    "soft\u00adhyphen \u00ad", "a\ud800b", "\udc00", "жe?e日e\x85",
    "\ufffd \ufffe \uffff \ue000 a\U000fdc00b\U000fffff \U000e0041\U00030000",
    "</s> <s> <unk> <pad> [MASK] <mask> [CLS]", "it's we'LL I’m don't 'ſ 'S 'K", "a ' s",
    "İI ıi ΑΣ ς ß ẞ", "0123456789 ٣٤٥ ½²", "!?...,;:--—“”", "▁ a▁b ▁▁", "Ġ Ċ", "<0x0A> <0xE2>",
    "a" * 3000, "ab " * 500, "x" * 200 + " y", "$100,000.50 user@x.org https://x.y/z?a=b _q_r+C++",
    "a\u2e43b \u166d \u1ac0 a\u0afab \u1734 a\u0890b",
    "constructor __proto__ toString", "$& $1 {} \\", "don 't do not", "blorp <x> blorp,", "blorp",
]  # fmt: skip
LINES = [*ENGLISH, *FRENCH, *HOSTILE]
SCRIPT = """
import { createInterface } from "node:readline";
import { readTokenizer } from "./tokenizer.js";
const answer = ({ json, lines }) => {
  const { source, target, encode } = readTokenizer(json);
  const ids = lines.map(encode), all = Array.from({ length: target.size }, (_, id) => id);
  const outputs = [source, target].map(side => [
    lines.map(side.encode), lines.map(side.encodePhrase), ids.map(side.decode),
    lines.map(line => side.pieces(side.encode(line))),
  ]);
  return [...outputs, target.pieces(all), all.map(id => target.decode([id]))];
};
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(answer(JSON.parse(line))) + "\\n");
}
"""


@pytest.fixture(scope="module")
def check_equal(tmp_path_factory):
    """Returns a check that the page's engine cuts lines as a tokenizer does, by one Node."""
    folder = tmp_path_factory.mktemp("engine")
    shutil.copytree(ENGINE, folder, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "answer.js").write_text(SCRIPT)
    command = [NODE, folder / "answer.js"]

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as node:

        def check(tokenizer, lines=LINES):
            data = {"json": page_tokenizer(tokenizer), "lines": lines}
            node.stdin.write(json.dumps(data) + "\n")
            node.stdin.flush()
            compare_outputs(tokenizer, lines, *json.loads(node.stdout.readline()))

        yield check
        node.stdin.close()


def compare_outputs(tokenizer, lines, source, target, labels, texts):
    rows = tokenizer.source.encode_batch(lines)
    for side, outputs in zip((tokenizer.source, tokenizer.target), (source, target), strict=True):
        phrases, own = side.encode_phrases(lines), side.encode_batch(lines)
        for n, (line, ids, phrase, text, pieces) in enumerate(zip(lines, *outputs, strict=True)):
            assert ids == list(own[n]), line
            assert phrase == list(phrases[n]), line
            assert pieces == side.pieces(own[n]), line
            if max(rows[n], default=0) < side.vocab_size:
                assert text == side.decode(rows[n]), line
    ids = range(tokenizer.target.vocab_size)
    assert labels == tokenizer.target.pieces(ids)
    assert texts == [tokenizer.target.decode([n]) for n in ids]


@pytest.mark.parametrize("normalization", ["nfc", "none"])
@pytest.mark.parametrize("algorithm", ["bpe", *slowly("byte", "char", "word"), "unigram"])
def test_tokenizers_of_tformer(check_equal, algorithm, normalization):
    config = TokenizerConfig(algorithm=algorithm, vocab_size=400, normalization=normalization)
    check_equal(train_tokenizer(ENGLISH + FRENCH, config))


def test_a_vocabulary_for_each_language(check_equal):
    pairs = list(zip(ENGLISH, FRENCH, strict=False))
    check_equal(train_sides(lambda: pairs, TokenizerConfig(vocab_size=400, joint=False)))


@pytest.mark.parametrize("normalization", ["nfc", *slowly("none")])
def test_new_tokens(check_equal, normalization):
    config = TokenizerConfig(vocab_size=400, normalization=normalization)
    tokenizer = train_tokenizer(ENGLISH + FRENCH, config).with_mask()
    lines = ["<x>y", "<x>", " <x> ", "<x> <x>  <x>", "a <x>y blorp", "blorp\n<x>", "", " "]
    check_equal(tokenizer.with_new_tokens(["<x>", "blorp", "<x>y", "é-é"]), lines + LINES)


BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def train_library(pre_tokenizer, normalizer=None, decoder=None, added=(), **settings):
    """Makes a tokenizer of the library `tokenizers` with merges."""
    tokenizer = Tokenizer(models.BPE(**settings))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.decoder = decoder or decoders.ByteLevel()
    in_bytes = not settings.get("byte_fallback")
    alphabet = pre_tokenizers.ByteLevel.alphabet() if in_bytes else []
    names = [] if in_bytes else ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=400 + len(names), initial_alphabet=alphabet, special_tokens=names,
        show_progress=False, end_of_word_suffix=settings.get("end_of_word_suffix", ""),
    )  # fmt: skip
    tokenizer.train_from_iterator(ENGLISH + FRENCH, trainer)
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.add_tokens(list(added))
    return tokenizer


def import_library(tokenizer):
    """Makes tformer's of it, with ids in the opposite order and a row without a piece."""
    foreign = [-1, -1, tokenizer.token_to_id("<|end|>"), -1, -1]
    foreign += reversed(range(tokenizer.get_vocab_size()))
    names = [*SPECIAL, "<row 4>", *(f"<piece {number}>" for number in foreign[5:])]
    return LibraryTokenizer(json.loads(tokenizer.to_str()), foreign, names)


def split_by(pattern):
    words = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([words, BYTE_LEVEL])


def make_llama2(normalizer=None, pre_tokenizer=None):
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)])
    if pre_tokenizer:
        decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    settings = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    return train_library(pre_tokenizer, normalizer, decoder, **settings)


LLAMA2_STEPS = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
LIBRARIES = {
    "gpt-neox": lambda: train_library(
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        normalizers.NFC(),
        added=[AddedToken("  ", normalized=True), AddedToken("<x>", normalized=False), "Å"],
    ),
    "llama 3": lambda: train_library(
        split_by(QWEN2_WORDS.replace(r"\p{N}|", r"\p{N}{1,3}|")), ignore_merges=True
    ),
    "smollm": lambda: train_library(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    ),
    "llama 2": lambda: make_llama2(LLAMA2_STEPS),
    "metaspace": lambda: make_llama2(None, pre_tokenizers.Metaspace(prepend_scheme="first")),
}


@pytest.mark.parametrize("name", ["gpt-neox", "llama 2", *slowly("llama 3", "smollm", "metaspace")])
def test_language_models(check_equal, name):
    check_equal(import_library(LIBRARIES[name]()))


@pytest.mark.parametrize(
    ("words", "mask"), [*slowly(("gpt2", "")), ("gpt2", "<mask>"), ("qwen2", "")]
)
def test_pieces_of_bytes(check_equal, words, mask):
    model = json.loads(LIBRARIES["llama 3"]().to_str())["model"]
    pieces = [*SPECIAL, *model["vocab"], *([mask] if mask else []), "名"]
    check_equal(BytePieceTokenizer(pieces, [tuple(m) for m in model["merges"]], "x", mask, words))


FLAGS = [(True,) * 4, *slowly(([False] * 4,), ([True, False, True, False],))]


@pytest.mark.parametrize("flags", FLAGS)
def test_wordpieces(check_equal, flags):
    names = ("lowercase", "strip_accents", "chinese", "clean")
    letters = sorted({*"".join(LINES)} - {" ", *map(chr, range(0xD800, 0xE000))})
    words = ["the", "street", "old", "##ing", "##use", "ho", "do", "not", "n", "日", "n't", "<x>"]
    pieces = [*SPECIAL, "[MASK]", *letters, *(f"##{letter}" for letter in letters), *words]
    pieces = list(dict.fromkeys(pieces))
    check_equal(WordPieceTokenizer(pieces, WordRules(**dict(zip(names, flags, strict=True)))))
    rules = WordRules(between_spaces=True, longest_word=20)
    check_equal(WordPieceTokenizer(pieces, rules, "[MASK]"))


def train_spm(**settings):
    written = io.BytesIO()
    settings = {"vocab_size": 150, "hard_vocab_limit": False, "minloglevel": 2} | settings
    SentencePieceTrainer.train(
        sentence_iterator=iter([*ENGLISH, *FRENCH, "ＡＢ 漢字 Straße ½"]), model_writer=written,
        num_threads=1, **settings
    )  # fmt: skip
    return written.getvalue()


SPMS = {
    "unigram": {},
    "bpe": {"model_type": "bpe"},
    "bytes": {"byte_fallback": True, "vocab_size": 400},
    "bpe in bytes": {"model_type": "bpe", "byte_fallback": True, "vocab_size": 450},
    "symbols": {"user_defined_symbols": [">>fr<<", "[X]", "[XY]", "blorp"]},
    "bpe with symbols": {"model_type": "bpe", "user_defined_symbols": ["[X]", "[XY]", "blorp"]},
    "spaces": {"remove_extra_whitespaces": False, "add_dummy_prefix": False},
    "across words": {"split_by_whitespace": False, "vocab_size": 200},
    "identity": {"normalization_rule_name": "identity"},
    "lower case": {"normalization_rule_name": "nmt_nfkc_cf"},
}
QUICK = ["unigram", "bpe in bytes", "bpe with symbols"]


@pytest.mark.parametrize("name", [*QUICK, *slowly(*(name for name in SPMS if name not in QUICK))])
def test_sentencepiece_models(check_equal, name):
    spm = train_spm(**SPMS[name])
    pieces = sorted({*read_spm(spm, "x.spm").pieces} - {*SPECIAL, "e"})
    lines = [
        *LINES,
        "[XY] [X]Y blorpblorp [XY",
        "ＡＢ[X] ｘ ＡＢ",
        "q",
        "qq",
        "ж",
        "日本",
        "<0x41>",
    ]
    check_equal(SentencePieceTokenizer.build(spm, None, [*SPECIAL, *pieces, "qq", "日本"]), lines)


LANGUAGES = {
    "tags": {"in_text": True},
    "sides": {"before_source": "source", "before_target": True, "source": "en", "target": "fr"},
    "ends": {"before_source": "source", "after_source": True, "source": "en"},
    "prompts": {"prompts": {"en": "A man ", "fr": "A man sleeps: "}, "target": "fr"},
}


@pytest.mark.parametrize("name", ["sides", *slowly("tags", "ends", "prompts")])
def test_languages(check_equal, name):
    tokens = {"en": ">>en<<", "fr": ">>fr<<"}
    settings = LANGUAGES[name] | ({} if name == "prompts" else {"tokens": tokens})
    spms = train_spm(), train_spm(model_type="bpe")
    pieces = [
        [*SPECIAL, *sorted({*read_spm(spm, "x").pieces} - {*SPECIAL}), *tokens.values()]
        for spm in spms
    ]
    tokenizer = SentencePieceTokenizer.build(*spms, *pieces, languages=Languages(**settings))
    starts = [">>fr<<", ">>fr<< ", ">>xx<<", ">><<", ">>", "A man ", "A man sleeps: ", " A man "]
    check_equal(tokenizer, [f"{a}{b}" for a, b in product(starts, ["", "Hi <<x>> man"])] + LINES)


@pytest.mark.parametrize(
    "codes",
    [
        None,
        "#version: 0.2\nl o\nlo w</w>\ne r</w>\nlo w\nn e\nne w\n",
        "l o\nlo w\ne r\nlow </w>\ner </w>\nn e\n",
        "b l 9\nbl o 8\n",
    ],
)
def test_words_and_their_pieces(check_equal, codes):
    pieces = [
        *SPECIAL,
        "low",
        "low@@",
        "er",
        "n@@",
        "▁a",
        "é",
        "a",
        "x",
        "</w>",
        "blo@@",
        "is",
        "@@",
    ]
    lines = [*LINES, "low lower  new\tnewlow", "é x @@ low@@ </w>", "nnn\x1cer\x85low\ufeff"]
    tokenizer = PieceTokenizer.build(pieces, [*pieces, "more"], codes=(codes, None))
    check_equal(tokenizer, lines)
    check_equal(tokenizer.with_new_tokens(["blorp", "<x>", "y@@"]), [*lines, "y@@ blorp"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: train_library(pre_tokenizers.ByteLevel(add_prefix_space=True)),
            r'the tokenizer\'s pre-tokenizer {"type": "ByteLevel", "add_prefix_space": true',
        ),
        (
            lambda: train_library(split_by(r"\p{Lu}+|\b")),
            r'the tokenizer\'s pattern "\\\\p{Lu}\+\|\\\\b"',
        ),
        (lambda: train_library(split_by(r"\p{L}++")), "the tokenizer's pattern"),
        (lambda: train_library(split_by(r"(?i:\p{L}|ss)")), "the tokenizer's pattern"),
        (lambda: train_library(BYTE_LEVEL, normalizers.NFKC()), 'normalizer {"type": "NFKC"}'),
        (lambda: train_library(BYTE_LEVEL, normalizers.StripAccents()), "StripAccents"),
        (lambda: train_library(BYTE_LEVEL, decoder=decoders.CTC()), 'decoder {"type": "CTC"'),
        (lambda: train_library(None), "a tokenizer without pieces for all bytes"),
        (lambda: train_library(BYTE_LEVEL, end_of_word_suffix="</w>"), "end_of_word_suffix"),
        (
            lambda: train_library(BYTE_LEVEL, added=[AddedToken("<x>", single_word=True)]),
            "the setting single_word of the token <x>",
        ),
    ],
)
def test_what_the_page_does_not_know_is_refused_by_name(make, message):
    with pytest.raises(UsageError, match=message):
        page_tokenizer(import_library(make()))


def test_other_parts_are_refused_by_name():
    spm = train_spm()
    pieces = sorted({*read_spm(spm, "x.spm").pieces} - {*SPECIAL})
    tokenizer = SentencePieceTokenizer.build(spm, None, [*SPECIAL, *pieces])
    with pytest.raises(UsageError, match="new tokens of an imported translation model"):
        page_tokenizer(tokenizer.with_new_tokens(["blorp"]))
    with pytest.raises(UsageError, match="the merge xy z, which stands before one"):
        page_tokenizer(PieceTokenizer.build(SPECIAL, codes=("xy z\nx y\n", None)))


MODELS = {
    "OPUS-MT": "TFORMER_OPUS_TOKENIZERS",
    "MiniLM": "TFORMER_MINILM",
    "stories260K": "TFORMER_STORIES",
    "quickstart": "TFORMER_QUICKSTART_RUN",
}


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_published_tokenizers_on_sentences_of_many_languages(check_equal, tmp_path, name):
    variables = MODELS[name], "TFORMER_FLORES"
    if not all(variable in os.environ for variable in variables):
        pytest.skip(f"{' and '.join(variables)} name no folders")
    path, sentences = (Path(os.environ[variable]) for variable in variables)
    lines = list(LINES)
    for file in sorted(sentences.glob("*.txt.gz")):
        lines += gzip.decompress(file.read_bytes()).decode("utf-8").split("\n")[:-1]
    if name == "OPUS-MT":
        tokenizers = [build_opus(folder) for folder in sorted(path.iterdir())]
    elif name == "quickstart":
        tokenizers = [read_tokenizer(path)]
    else:
        import_model(str(path), tmp_path / "model")
        tokenizers = [read_tokenizer(tmp_path / "model")]
    for tokenizer in tokenizers:
        check_equal(tokenizer, lines)


def build_opus(folder):
    stored = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    pieces = [*SPECIAL, *(piece for piece in stored if piece not in SPECIAL)]
    tags = {piece[2:-2]: piece for piece in pieces if piece.startswith(">>")}
    spms = [(folder / name).read_bytes() for name in ("source.spm", "target.spm")]
    languages = Languages(tokens=tags, in_text=bool(tags))
    return SentencePieceTokenizer.build(*spms, pieces, languages=languages)
