"""Random encoders of BERT's family in directories, with their tokenizers, as others write them."""

import json

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from tests.foreign.spm import pad_rows

TEXTS = [
    "The soup was not too terrible, and the unbelievable café was friendly.",
    "Did the waiter's brother really recommend it? He didn't!",
]
SAMPLES = [*TEXTS, "ÀÉÎ naïve 漢字 unbelievably (good).", "x", "terrible\tsoup\u00a0café\x07 [SEP]"]
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BYTE_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
KINDS = {
    "bert": ("Bert", {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
                      "intermediate_size": 20, "max_position_embeddings": 40}),
    "roberta": ("Roberta", {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
                            "intermediate_size": 20, "max_position_embeddings": 42,
                            "type_vocab_size": 1, "bos_token_id": 0, "pad_token_id": 1,
                            "eos_token_id": 2}),
    "distilbert": ("DistilBert", {"dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 20,
                                  "max_position_embeddings": 40}),
}  # fmt: skip
SHAPES = {**KINDS, "electra": ("Electra", {**KINDS["bert"][1], "embedding_size": 16})}
TASKS = {
    "ForMaskedLM": "masked",
    "ForSequenceClassification": "classify",
    "ForTokenClassification": "tag",
    "Model": "embed",
}
NOT_THERE = [("roberta", "ForTokenClassification"), ("electra", "ForSequenceClassification")]
CASES = [(kind, head) for kind in SHAPES for head in TASKS if (kind, head) not in NOT_THERE]
"""Kinds and heads that are imported and exported."""


def word_pieces(*, lowercase=True):
    """A WordPiece tokenizer whose specials have BERT's order, trained on the texts."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=SPECIAL[1]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=["[unused0]", *SPECIAL], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def byte_pieces():
    """A BPE tokenizer on bytes as RoBERTa has it, trained on the texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=list(BYTE_SPECIAL[:4]), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens(["<mask>"])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def random_model(kind, head, size, *, std=0.3, **changes):
    """A model of transformers with all parameters random, or, with std 0, as training begins."""
    name, shape = SHAPES[kind]
    config_class = getattr(transformers, f"{name}Config")
    epsilon = {} if kind == "distilbert" else {"layer_norm_eps": 1e-3}
    config = config_class(
        vocab_size=size, attn_implementation="eager", **{**shape, **epsilon, **changes}
    )
    torch.manual_seed(3)
    model = getattr(transformers, f"{name}{head}")(config).eval()
    for parameter in model.parameters() if std else ():
        torch.nn.init.normal_(parameter, std=std)
    if config.tie_word_embeddings:
        model.tie_weights()
    elif head == "ForMaskedLM" and std and kind == "bert":  # one bias under two names
        model.cls.predictions.bias.data.copy_(model.cls.predictions.decoder.bias)
    return model


def write_directory(path, kind, head, *, files="whole", lowercase=True, **changes):
    """Writes a model and its tokenizer.

    Args:
        path: the directory, which is made.
        kind: one of `KINDS`.
        head: the end of the name of its class.
        files: "whole": a tokenizer.json that truncates and pads; "parts": lists of pieces.
        lowercase: of WordPiece.
        **changes: of its configuration.

    Returns:
        The model and its tokenizer.
    """
    path.mkdir(parents=True)
    is_bytes = kind == "roberta"
    tokenizer = byte_pieces() if is_bytes else word_pieces(lowercase=lowercase)
    size = tokenizer.get_vocab_size()
    model = random_model(kind, head, pad_rows(size), **changes)
    model.save_pretrained(path)
    if files == "whole":
        whole = Tokenizer.from_str(tokenizer.to_str())
        whole.enable_truncation(5)
        whole.enable_padding(length=5)
        whole.save(str(path / "tokenizer.json"))
    elif is_bytes:
        tokenizer.model.save(str(path))
        pieces = json.loads((path / "vocab.json").read_text())
        (path / "vocab.json").write_text(json.dumps({**pieces, "<mask>": size - 1}))
    else:
        names = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        (path / "vocab.txt").write_text("".join(f"{name}\n" for name, _ in names))
        settings = {"do_lower_case": lowercase, "tokenizer_class": "BertTokenizer"}
        (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return model, tokenizer
