"""Rows that the files of all Hugging Face models share, and how their tokenizers' files are read.

A family's tables are these rows and its own. Sources: transformers 4.57 and 5.23,
configuration_utils.py and tokenization_utils_base.py; tokenizers 0.22.
"""

import json
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.keys import (
    USED,
    KeyRows,
    Keys,
    Parts,
    Row,
    no_effect,
    omit,
    only,
    quote,
    read_json_file,
    rows_of,
)
from tformer_cli.text.foreign_pieces import PREFIX, QWEN2_WORDS
from tformer_cli.text.sentencepiece.spm_file import SPACE

CONFIG, TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"
TOKENIZER, TOKENS_MAP, ADDED = "tokenizer.json", "special_tokens_map.json", "added_tokens.json"
OWN = "tformer"  # key of what no other says of a model that tformer has exported
_TRAINING = no_effect("of training")
OUTPUT = no_effect("which outputs the library returns")
SPEED = no_effect("speed and memory of the library")
_ORIGIN = no_effect("where the model comes from")
_TASKS = no_effect("of the library's pipelines, by task")


CONFIG_ROWS: KeyRows = MappingProxyType(
    {
        **rows_of("model_type architectures", USED),
        **rows_of("bos_token_id eos_token_id pad_token_id decoder_start_token_id", USED),
        **rows_of("sep_token_id cls_token_id unk_token_id mask_token_id", no_effect("vocabulary")),
        **rows_of("id2label label2id num_labels _num_labels", no_effect("there are no labels")),
        **rows_of("_name_or_path name_or_path _commit_hash transformers_version", _ORIGIN),
        **rows_of("transformers.js_config unsloth_version unsloth_fixed model_name", _ORIGIN),
        **rows_of("finetuning_task language", _ORIGIN),
        **rows_of("torch_dtype dtype use_bfloat16", no_effect("weights are computed in float32")),
        **rows_of("output_attentions output_hidden_states _output_attentions", OUTPUT),
        **rows_of("return_dict use_return_dict output_past torchscript", OUTPUT),
        **rows_of("use_cache chunk_size_feed_forward gradient_checkpointing", SPEED),
        **rows_of("xla_device attn_implementation _attn_implementation", SPEED),
        **rows_of("_attn_implementation_autoset _flash_attn_2_enabled onnx", SPEED),
        **rows_of("initializer_range init_std initializer_factor tf_legacy_loss", _TRAINING),
        **rows_of("dropout attention_dropout activation_dropout hidden_dropout_prob", _TRAINING),
        **rows_of("attention_probs_dropout_prob classifier_dropout classif_dropout", _TRAINING),
        **rows_of("dropout_rate resid_pdrop embd_pdrop attn_pdrop qa_dropout", _TRAINING),
        **rows_of("seq_classif_dropout encoder_layerdrop decoder_layerdrop", _TRAINING),
        "eos_token_ids": no_effect("only version 2 of the library reads it"),
        "task_specific_params": _TASKS,
        "custom_pipelines": _TASKS,
        OWN: USED,
        "auto_map": omit("the model's own code is not run; the library's class is computed"),
        "prefix": omit("is not put before texts", ""),
        "quantization_config": only(None),
        "pruned_heads": only(None, {}),
        "cross_attention_hidden_size": only(None),
        "tie_encoder_decoder": only(None, False),
    }
)
LABELS: KeyRows = rows_of("id2label label2id num_labels _num_labels", USED)

ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token", "bos_token", "eos_token")
_MORE_TOKENS = ("additional_special_tokens", "extra_special_tokens")
TOKENS_ROWS: KeyRows = MappingProxyType(dict.fromkeys((*ROLES, *_MORE_TOKENS), USED))
_BATCHES = no_effect("batches are padded here by their longest text, and padding is masked")
TOKENIZER_ROWS: KeyRows = MappingProxyType(
    {
        **TOKENS_ROWS,
        "added_tokens_decoder": USED,
        "tokenizer_class": USED,
        **rows_of("name_or_path special_tokens_map_file tokenizer_file vocab_file", _ORIGIN),
        **rows_of("full_tokenizer_file merges_file transformers_version", _ORIGIN),
        **rows_of("processor_class auto_map tokenizer_type is_local local_files_only", _ORIGIN),
        **rows_of("use_fast from_slow backend init_inputs", no_effect("which program cuts texts")),
        **rows_of("padding_side pad_to_multiple_of pad_token_type_id padding", _BATCHES),
        "model_input_names": OUTPUT,
        "return_token_type_ids": OUTPUT,
        **rows_of("trim_offsets return_attention_mask", OUTPUT),
        **rows_of("model_max_length max_len", no_effect("the table of positions determines it")),
        **rows_of("max_length truncation stride truncation_strategy", no_effect("chosen by calls")),
        "truncation_side": omit("texts that are too long are cut off at their end", "right"),
        "chat_template": omit("prompts are taken as they are"),
        "use_default_system_prompt": no_effect("of chats"),
        "clean_up_tokenization_spaces": no_effect(
            "for the text of English tokens; pieces here say which spaces they have"
        ),
        "spaces_between_special_tokens": no_effect("special tokens are not written"),
        # names of special tokens in a text are text here, as this has it
        "split_special_tokens": no_effect("special tokens in a text are text"),
        "errors": no_effect("bytes that are not UTF-8 become U+FFFD"),
        "legacy": no_effect("of texts with special tokens"),
        "model_specific_special_tokens": no_effect("names of special tokens"),
    }
)

ADDED_ROWS: KeyRows = MappingProxyType(
    {
        **rows_of("id content special", USED),
        "single_word": only(False),
        **rows_of("lstrip rstrip normalized", no_effect("special tokens in a text are text")),
        "__type": no_effect("name of a class"),
    }
)
_TEMPLATE = {"single": USED, **rows_of("pair special_tokens", no_effect("of pairs"))}
_AROUND = {**rows_of("sep cls", USED), **rows_of("trim_offsets add_prefix_space", OUTPUT)}
# tokens around a text; see `surrounding`
POST_PROCESSOR = Parts(
    {
        None: {},
        "TemplateProcessing": _TEMPLATE,
        "BertProcessing": _AROUND,
        "RobertaProcessing": _AROUND,
        "ByteLevel": rows_of("trim_offsets add_prefix_space use_regex", OUTPUT),
    },
    in_sequence=True,
)


def whole_tokenizer(models: str, **sections: KeyRows | Parts) -> Keys:
    return Keys(
        TOKENIZER,
        models,
        {
            "version": no_effect("of the format"),
            "truncation": no_effect("models say how long texts are"),
            "padding": _BATCHES,
            "added_tokens": ADDED_ROWS,
            "post_processor": POST_PROCESSOR,
            "decoder": no_effect("its texts are compared, if the model writes any"),
            **sections,
        },
    )


def _tokenizer_class(names: str) -> Row:
    return only(
        None,
        *(f"{name}Tokenizer{fast}" for name in names.split() for fast in ("", "Fast")),
        *("PreTrainedTokenizerFast", "TokenizersBackend"),
    )


def tokenizer_config(models: str, classes: str, **rows: Row) -> Keys:
    rows = {**TOKENIZER_ROWS, "tokenizer_class": _tokenizer_class(classes), **rows}
    return Keys(TOKENIZER_CONFIG, models, rows)


_SPM = {
    "sp_model_kwargs": only(None, {}),
    "unk_id": no_effect("the SentencePiece model has it"),
    "clean_up_tokenization_spaces": omit("texts keep the spaces that their pieces have", False),
}
_BYTES_CONFIG = {
    **rows_of("add_prefix_space add_bos_token add_eos_token", only(None, False)),
    "clean_up_tokenization_spaces": _SPM["clean_up_tokenization_spaces"],
}
# tokenizer_config.json of each kind of tokenizer
TOKENIZER_CONFIGS = {
    "bert": tokenizer_config(
        "BERT, RoBERTa, DistilBERT",
        "Bert DistilBert Roberta Electra",
        **rows_of("do_lower_case strip_accents tokenize_chinese_chars", USED),
        **rows_of("model_max_length max_len", USED),
        add_prefix_space=only(None, False),
        do_basic_tokenize=only(None, True),
        never_split=only(None, []),
    ),
    "gpt2": tokenizer_config("GPT-2", "GPT2 Qwen2", **_BYTES_CONFIG),
    "llama": tokenizer_config(
        "LLaMA",
        "Llama",
        **_SPM,
        **rows_of("add_bos_token add_prefix_space add_dummy_prefix_space", only(None, True)),
        add_eos_token=only(None, False),
    ),
    "library": tokenizer_config(
        "LLaMA, Qwen2, GPT-NeoX",
        "Llama GPT2 GPTNeoX Qwen2",
        **_SPM,
        **rows_of("add_bos_token add_prefix_space", USED),
        add_eos_token=only(None, False),
    ),
    "t5": tokenizer_config(
        "T5, mT5, ByT5, MADLAD",
        "T5 MT5 ByT5",
        **_SPM,
        extra_ids=USED,
        add_prefix_space=only(None, True),
    ),
    "marian": tokenizer_config(
        "Marian",
        "Marian",
        **_SPM,
        **rows_of("source_lang target_lang", USED),
        separate_vocabs=no_effect("the model's settings say it"),
    ),
    "m2m_100": tokenizer_config(
        "M2M-100, NLLB, mBART",
        "M2M100 Nllb MBart MBart50",
        **_SPM,
        **rows_of("src_lang tgt_lang", no_effect("chosen by each translation")),
        legacy_behaviour=USED,
        **rows_of(
            "language_codes num_madeup_words", no_effect("files name the tokens of languages")
        ),
    ),
    "pegasus": tokenizer_config(
        "Pegasus",
        "Pegasus",
        **_SPM,
        offset=only(103),
        mask_token_sent=no_effect("of its pre-training"),
    ),
    "exported": tokenizer_config(
        "exports of tformer",
        "Marian",
        clean_up_tokenization_spaces=_SPM["clean_up_tokenization_spaces"],
    ),
}


def classes_of(kind: str) -> Row:
    """The row of the class of a tokenizer, which config.json may name, too."""
    return TOKENIZER_CONFIGS[kind].rows["tokenizer_class"]


def check_class(file: Path, named: object, *classes: str) -> None:
    """Refuses a tokenizer class that cuts texts in another way than its files are read here."""
    known = {None, "PreTrainedTokenizer", "TokenizersBackend", *(f"{c}Tokenizer" for c in classes)}
    if (named if named is None else str(named).removesuffix("Fast")) not in known:
        raise ArtifactError(
            f"{file}: tokenizer_class = {quote(named)}, but the files are those of "
            f"{' or '.join(f'{name}Tokenizer' for name in classes)}; correct it"
        )


TRANSLATOR_CLASSES = _tokenizer_class("Marian M2M100 Nllb MBart MBart50 Pegasus")
_BYTE_LEVEL = {
    "add_prefix_space": only(False),
    "trim_offsets": no_effect("where pieces stand in a text"),
}
_BYTES_MODEL = {
    **rows_of("vocab merges", USED),
    "type": only("BPE"),
    "dropout": only(None, 0.0),
    **rows_of("unk_token fuse_unk", no_effect("every byte is a piece")),
    **rows_of("continuing_subword_prefix end_of_word_suffix", only(None, "")),
    **rows_of("byte_fallback ignore_merges", only(False)),
}
_SPLIT = {
    "pattern": only({"Regex": QWEN2_WORDS}),
    "behavior": only("Isolated"),
    "invert": only(False),
}
# a normalizer: runs of spaces, and newlines, which no line has
_REPLACED = only({"Regex": " {2,}"}, {"String": " "}, {"Regex": r"\n"})
_NORMALIZER = Parts(
    {
        None: {},
        "Precompiled": {"precompiled_charsmap": USED},
        "Replace": {"pattern": _REPLACED, "content": only(" ", SPACE)},
        "Prepend": {"prepend": only(SPACE)},
        "Strip": rows_of("strip_left strip_right", no_effect("texts lose spaces at their ends")),
    },
    in_sequence=True,
)
# their joint effect is compared with the tokens here; see `same_tokens`
_PRE_TOKENIZER = Parts(
    {
        None: {},
        "WhitespaceSplit": {},
        "Metaspace": {
            **rows_of("replacement str_rep", only(SPACE)),
            "add_prefix_space": only(True),
            "prepend_scheme": only("always", "first"),
            "split": only(True, False),
        },
    },
    in_sequence=True,
)


def _beside_spm(models: str, *types: str, byte_fallback: bool = False) -> Keys:
    """The table of a tokenizer.json that was made of a SentencePiece model."""
    model: KeyRows = {
        "type": only(*types),
        **rows_of("vocab unk_id unk_token", USED),
        "merges": no_effect("the SentencePiece model has them; its tokens are compared"),
        "byte_fallback": only(byte_fallback, *(() if byte_fallback else (None,))),
        "dropout": only(None, 0.0),
        **rows_of("continuing_subword_prefix end_of_word_suffix", only(None, "")),
        "fuse_unk": only(True),
        "ignore_merges": only(False),
    }
    return whole_tokenizer(
        models, normalizer=_NORMALIZER, pre_tokenizer=_PRE_TOKENIZER, model=model
    )


# tokenizer.json of each kind of tokenizer
WHOLE_TOKENIZERS = {
    "bert": whole_tokenizer(
        "BERT, DistilBERT",
        normalizer=Parts(
            {
                "BertNormalizer": rows_of(
                    "clean_text handle_chinese_chars strip_accents lowercase", USED
                ),
                "Lowercase": {},  # which sentence-transformers puts first
            },
            in_sequence=True,
        ),
        pre_tokenizer=Parts({"BertPreTokenizer": {}}),
        model={
            "type": only("WordPiece"),
            "continuing_subword_prefix": only(PREFIX),
            **rows_of("vocab unk_token max_input_chars_per_word", USED),
        },
    ),
    "gpt2": whole_tokenizer(
        "GPT-2",
        normalizer=Parts({None: {}}),
        pre_tokenizer=Parts({"ByteLevel": {**_BYTE_LEVEL, "use_regex": only(True)}}),
        model=_BYTES_MODEL,
    ),
    "qwen2": whole_tokenizer(
        "Qwen2",
        normalizer=Parts({"NFC": {}}),
        pre_tokenizer=Parts(
            {"Split": _SPLIT, "ByteLevel": {**_BYTE_LEVEL, "use_regex": only(False)}},
            in_sequence=True,
        ),
        model=_BYTES_MODEL,
    ),
    "spm": _beside_spm("NLLB, mBART, Pegasus (next to a SentencePiece model)", "Unigram", "BPE"),
    "llama": _beside_spm(
        "LLaMA (next to a SentencePiece model)", "Unigram", "BPE", byte_fallback=True
    ),
    "t5": _beside_spm("T5, mT5, MADLAD", "Unigram"),
}
_COMPUTED = rows_of(
    "pattern behavior invert content prepend replacement str_rep prepend_scheme split start stop"
    " individual_digits add_prefix_space use_regex trim_offsets",
    no_effect("the library computes it"),
)
_KINDS = "ByteLevel Replace Prepend Split Digits Metaspace Strip NFC NFKC ByteFallback Fuse"
_COMPUTED_PARTS = Parts(
    {None: {}, **{kind: _COMPUTED for kind in _KINDS.split()}}, in_sequence=True
)
# for a tokenizer that the library itself computes: the known parts
WHOLE_TOKENIZERS["library"] = whole_tokenizer(
    "LLaMA, Qwen2, GPT-NeoX (without a SentencePiece model)",
    normalizer=_COMPUTED_PARTS,
    pre_tokenizer=_COMPUTED_PARTS,
    decoder=_COMPUTED_PARTS,
    added_tokens={
        **rows_of("id content special", USED),
        **rows_of("single_word lstrip rstrip normalized __type", _COMPUTED["content"]),
    },
    model={
        "type": only("BPE"),
        "dropout": only(None, 0.0),
        **rows_of("vocab merges", USED),
        **rows_of("unk_token fuse_unk byte_fallback ignore_merges", _COMPUTED["content"]),
        **rows_of("continuing_subword_prefix end_of_word_suffix", only(None, "")),
    },
)
TOKENS = Keys(TOKENS_MAP, "all", TOKENS_ROWS)


def read_tokenizer_files(path: Path, table: Keys) -> tuple[dict[str, Any], list[str], list[Path]]:
    roles: dict[str, Any] = {}
    notes: list[str] = []
    files = [path / name for name in (TOKENS_MAP, TOKENIZER_CONFIG) if (path / name).is_file()]
    for file in files:
        values = read_json_file(file)
        keys = TOKENS if file.name == TOKENS_MAP else table
        notes += keys.read(file, values)
        for role in ROLES:
            if isinstance(values.get(role), dict):
                values[role] = values[role].get("content")
            if None not in (values.get(role), roles.get(role)) and values[role] != roles[role]:
                raise ArtifactError(
                    f"{file}: {role} = {quote(values[role])}, but {TOKENS_MAP} says "
                    f"{quote(roles[role])}; correct one of the two"
                )
        roles |= {name: value for name, value in values.items() if value is not None}
    return roles, notes, files


def added_tokens(path: Path, settings: Mapping[str, Any]) -> dict[str, int | None]:
    """The tokens that the files of a tokenizer add to its vocabulary, with their ids if given."""
    tokens: dict[str, int | None] = {}
    for name in _MORE_TOKENS:
        more = settings.get(name) or ()
        for token in more.values() if isinstance(more, dict) else more:
            content = token.get("content") if isinstance(token, dict) else token
            tokens[str(content)] = None
    numbered = settings.get("added_tokens_decoder") or {}
    for number, token in numbered.items() if isinstance(numbered, dict) else ():
        if not (number.isdecimal() and isinstance(token, dict)):
            raise ArtifactError(
                f"{path / TOKENIZER_CONFIG}: added_tokens_decoder is damaged; download it again"
            )
        tokens[str(token.get("content"))] = int(number[:20])
    whole = path / TOKENIZER
    if whole.is_file():
        tokens |= added_of(read_json_file(whole), whole)
    if (path / ADDED).is_file():
        tokens |= read_json_file(path / ADDED)
    return tokens


def added_of(parts: Mapping[str, Any], file: Path) -> dict[str, int]:
    tokens = parts.get("added_tokens") or ()
    try:
        return {str(token["content"]): int(token["id"]) for token in tokens}
    except (KeyError, TypeError, ValueError):
        raise ArtifactError(f"{file}: added_tokens is damaged; download it again") from None


def check_added(
    path: Path, added: Mapping[str, int | None], ids: Mapping[str, int], known: Container[str]
) -> None:
    """Refuses added tokens that texts would be cut at, or that have another id."""
    for token, number in added.items():
        name = json.dumps(token)[:60]
        if token not in known:
            raise ArtifactError(
                f"{path}: has the added token {name}, at which its library cuts texts, which is "
                "not supported; import another model"
            )
        if number is not None and ids.get(token, number) != number:
            raise ArtifactError(
                f"{path}: its files give {name} the ids {ids[token]} and {quote(number)}; use this "
                "model's own files"
            )


def parts_of(section: object) -> list[Mapping[str, Any]]:
    """A section of a tokenizer.json, or the parts of a sequence."""
    if not isinstance(section, dict):
        return []
    inner = (value for value in section.values() if isinstance(value, list))
    return [section, *(part for parts in inner for step in parts for part in parts_of(step))]


def surrounding(file: Path, part: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens that a post-processor puts before and after a text."""
    before, behind = [], []
    try:
        for processor in _post_processors(part):
            if "cls" in processor:
                before.append(str(processor["cls"][0]))
                behind.append(str(processor["sep"][0]))
            side = before
            for item in processor.get("single", ()):
                if "Sequence" in item:
                    side = behind
                else:
                    side.append(str(item["SpecialToken"]["id"]))
    except (AttributeError, LookupError, TypeError):
        raise ArtifactError(f"{file}: post_processor is damaged; download it again") from None
    return tuple(before), tuple(behind)


def _post_processors(part: Any) -> Sequence[Mapping[str, Any]]:  # noqa: ANN401
    if part is None:
        return []
    if part.get("type") == "Sequence":
        return [inner for processor in part["processors"] for inner in _post_processors(processor)]
    return [part]


def check_surrounding(
    file: Path, parts: Mapping[str, Any], before: Sequence[str], behind: Sequence[str]
) -> None:
    """Refuses a tokenizer.json that puts different tokens around a text."""
    sides = surrounding(file, parts.get("post_processor"))
    if sides != (tuple(before), tuple(behind)):
        shown_tokens = " … ".join(" ".join(side) for side in sides)[:80]
        raise ArtifactError(
            f"{file}: post_processor puts {json.dumps(shown_tokens)} around a text, which is not "
            "supported; import another model"
        )
