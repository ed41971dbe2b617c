"""Texts that tokenizers get wrong."""

from hypothesis import strategies as st

from tformer_cli.text.tokenizer import SPECIAL_PIECES

PARTS = [
    *SPECIAL_PIECES,
    *[
        " ", "  ", "▁", "\t", "\u00a0", "\u3000", "\u2028", "\x00", "\x01", "\u200b", "\ufeff",
        "\ufffd",
    ],
    *[
        "e\u0301", "\u0301", "\u0308", "Å", "ﬁ", "½", "…", "ﷺ", "ｶﾞ", "\u1100\u1161", "각",
        "\u0cc6\u0cd5",
    ],
    *["<0xE2>", "<sep>", "Hund", "Hunde", "½x", "a b", ">>fr<<", ">>", "<<"],
    *["😀", "👩‍👧", "\U0010ffff", "\U0010fffe", "हिन्दी", "漢字", "Straße"],
    *["The dog", " sees", "man", "kauft den Wagen", "STREET", ".", ",", "0"],
]  # fmt: skip
hard_text = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.lists(st.sampled_from(PARTS), max_size=14).map("".join),
)
