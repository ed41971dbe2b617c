"""The page's tokenizers in JavaScript give what tformer's tokenizers give, for every kind."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.zoo import ENGLISH, FRENCH
from tformer_cli.plugins import page
from tformer_cli.plugins.page.tokenizer_json import page_tokenizer
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer

ENGINE = Path(page.__file__).with_name("engine")
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs node")
HOSTILE = [
    "", " ", "   ", "\t", "\n", "a\n\nb", "\r\n x\r", "a  b", " a b ", "  lead", "trail  ",
    "\x00\x01\x1f\x7f\x85 x", "a\xa0b\u3000c\u2009d\u202fe", "a\u2028b\u2029c", "\ufeffx \ufeff",
    "e\u0301te\u0301 cafe\u0301", "\u0300\u0301", "\u1100\u1161\u11a8 한국어", "½ ﬁ ① ㎏ ﷺ Å",
    "👩‍👩‍👧‍👦 family 🇫🇷 ✌🏽", "\U0001d400\U00020000 \U0001f9ff", "שלום עולם", "مرحبا بالعالم، كيف",
    "\u202eabc\u202c", "日本語のテスト。中文", "ภาษาไทย", "x\u200by \u200b ก\u200bข", "नमस्ते க்ஷ",
    "soft\u00adhyphen \u00ad", "a\ud800b", "\udc00", "\ufffd \ufffe \uffff \ue000",
    "</s> <s> <unk> <pad> [MASK] <mask> [CLS]", "it's we'LL I’m don't 'ſ 'S 'K", "a ' s",
    "İI ıi ΑΣ ς ß ẞ", "0123456789 ٣٤٥ ½²", "!?...,;:--—“”", "▁ a▁b ▁▁", "Ġ Ċ", "<0x0A> <0xE2>",
    "a" * 3000, "ab " * 500, "x" * 200 + " y", "$100,000.50 user@x.org https://x.y/z?a=b _q_r+C++",
    "constructor __proto__ toString", "$& $1 {} \\", "don 't do not", "blorp <x> blorp,", "blorp",
]  # fmt: skip
LINES = [*ENGLISH, *FRENCH, *HOSTILE]
SCRIPT = """
import { readFileSync } from "node:fs";
const { engine, json, lines } = JSON.parse(readFileSync(0, "utf-8"));
const { readTokenizer } = await import(engine + "/tokenizer.js");
const { source, target, encode } = readTokenizer(json);
const ids = lines.map(encode), all = Array.from({ length: target.size }, (_, id) => id);
const sides = [source, target].map(side => [
  lines.map(side.encode), lines.map(side.encodePhrase), ids.map(side.decode),
  lines.map(line => side.pieces(side.encode(line))),
]);
const texts = all.map(id => target.decode([id]));
process.stdout.write(JSON.stringify([...sides, target.pieces(all), texts]));
"""


def in_node(tokenizer, lines):
    """Returns what the page's engine makes of lines: of each side, then of the target's ids."""
    given = {"engine": str(ENGINE), "json": page_tokenizer(tokenizer), "lines": lines}
    output = subprocess.run(
        [NODE, "--input-type=module", "-e", SCRIPT],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert output.returncode == 0, output.stderr
    return json.loads(output.stdout)


def check_equal(tokenizer, lines=LINES):
    *sides, labels, texts = in_node(tokenizer, lines)
    rows = tokenizer.source.encode_batch(lines)
    for side, output in zip((tokenizer.source, tokenizer.target), sides, strict=True):
        ids, phrases, decoded, pieces = output
        own = side.encode_batch(lines)
        decoded_here = [side.decode([i for i in row if i < side.vocab_size]) for row in rows]
        kept = [n for n, row in enumerate(rows) if all(i < side.vocab_size for i in row)]
        for n, line in enumerate(lines):
            assert ids[n] == list(own[n]), line
            assert phrases[n] == list(side.encode_phrases([line])[0]), line
            assert pieces[n] == side.pieces(own[n]), line
            assert n not in kept or decoded[n] == decoded_here[n], line
    target = tokenizer.target
    assert labels == target.pieces(range(target.vocab_size))
    assert texts == [target.decode([n]) for n in range(target.vocab_size)]


@pytest.mark.parametrize("normalization", ["nfc", "none"])
@pytest.mark.parametrize("algorithm", ["bpe", "byte", "char", "word", "unigram"])
def test_tokenizers_of_tformer(algorithm, normalization):
    config = TokenizerConfig(algorithm=algorithm, vocab_size=400, normalization=normalization)
    check_equal(train_tokenizer(ENGLISH + FRENCH, config))


@pytest.mark.parametrize("normalization", ["nfc", "none"])
def test_new_tokens(normalization):
    config = TokenizerConfig(vocab_size=400, normalization=normalization)
    tokenizer = train_tokenizer(ENGLISH + FRENCH, config).with_mask()
    lines = ["<x>y", "<x>", " <x> ", "<x> <x>  <x>", "a <x>y blorp", "blorp\n<x>", "", " "]
    check_equal(tokenizer.with_new_tokens(["<x>", "blorp", "<x>y", "é-é"]), lines + LINES)
