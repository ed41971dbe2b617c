"""Odd but legal models beside transformers: the same numbers to 1e-5, or refused by name.

Families × odd tokenizer files × odd settings, with random weights. The library opens each as its
users do, from the files alone. `python -m tests.foreign.test_odd_models` prints
a table, with words of those whose name has one of them.
"""

import json
import re
import sys
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

import transformers

from tests.foreign import encoders, test_bert, test_gpt2, test_llama
from tests.foreign.hugging_face import test_importing as translators
from tests.foreign.spm import MERGES, PIECES, pad_rows, spm
from tests.foreign.t5 import test_importing as test_t5
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.lines.embed import embed_texts
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.kinds.opening import open_model
from tformer_cli.search.source_batches import source_batch
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

FAST = (
    *("BERT with MeCab", "BERT with an added token", "BERT whose two files lower-case differently"),
    *("RoBERTa with a space before texts, by settings", "GPT-2, both forms, one in small letters"),
    *(
        "GPT-2 with a start",
        "LLaMA without a start",
        "LLaMA, no space before texts in tokenizer.json",
    ),
    *("LLaMA with two ends", "LLaMA with padded rows", "LLaMA 1, without num_key_value_heads"),
    *("sentences, length in tokenizer_config.json", "sentences, a default prompt"),
    *("Marian, bad words", "Marian, suppressed tokens", "Marian, at least 9 tokens"),
    *("Marian, repetition penalty in beams", "M2M-100 whose padding is 5"),
)
"""Cases that run by default; the others are slow."""
TEXTS = ["The soup was not too terrible, and the CAFÉ 漢字 was unbelievably 1234 friendly.", "x"]
LINES = ["a cat", "the old house is green", "no b c d e f g h i"]
CLOSE = 1e-5


def edit(path, name, **changes):
    """Changes a JSON file; a dotted key is of an inner object, None removes one."""
    file = path / name
    stored = json.loads(file.read_text()) if file.exists() else {}
    for key, value in changes.items():
        *outer, last = key.split("__")
        inner = stored
        for part in outer:
            inner = inner[part]
        inner[last] = value
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(stored))


def bert(path, kind="bert", head="Model", files="whole", lowercase=True, **changes):
    options = {"max_position_embeddings": 90, **changes}
    encoders.write_directory(path, kind, head, files=files, lowercase=lowercase, **options)
    roles = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    names = ("<pad>", "<unk>", "<s>", "</s>", "<mask>") if kind == "roberta" else encoders.SPECIAL
    name = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert"}[kind]
    settings = {"tokenizer_class": f"{name}Tokenizer", **dict(zip(roles, names, strict=True))}
    if kind != "roberta":
        settings["do_lower_case"] = lowercase
    edit(path, "tokenizer_config.json", **settings)
    if (path / "tokenizer.json").exists():
        edit(path, "tokenizer.json", truncation=None, padding=None)


def with_sentences(path, pooling="pooling_mode_mean_tokens", longest=None):
    bert(path)
    test_bert.write_pipeline(path, pooling=pooling)
    if longest is None:
        (path / "sentence_bert_config.json").unlink()


def saved_sentences(path, **changes):
    """As today's sentence-transformers writes it."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    bert(path.with_name("plain"))
    inner = sentence_transformers.models.Transformer(str(path.with_name("plain")))
    pooling = sentence_transformers.models.Pooling(16, "mean")
    model = sentence_transformers.SentenceTransformer(modules=[inner, pooling], **changes)
    model.max_seq_length = 9
    model.save_pretrained(str(path))


def gpt2(path, saved=True, generation=(), **changes):
    path.mkdir()
    tokenizer = test_gpt2.write_tokenizer(path)
    model = test_gpt2.random_gpt2(pad_rows(tokenizer.get_vocab_size()), **changes)
    model.generation_config.update(**dict(generation))
    model.save_pretrained(path)
    if saved:
        theirs = transformers.GPT2Tokenizer.from_pretrained(path)
        for name in ("vocab.json", "merges.txt"):
            (path / name).unlink()
        theirs.save_pretrained(path)


def gpt2_in_both_forms(path):
    gpt2(path, saved=False)
    test_gpt2.write_tokenizer(path).save(str(path / WHOLE))


def with_other_words(path):
    bert(path)
    (path / "vocab.txt").write_text("x\ny\n")


def llama(path, size=0, **changes):
    test_llama.random_llama(len(PIECES) + size, **changes).save_pretrained(path)
    (path / "tokenizer.model").write_bytes(spm(PIECES, algorithm=2, keeps_spaces=True))


def llama_in_both_forms(path):
    """With the tokenizer.json that version 4 makes of the SentencePiece model."""
    llama(path)
    vocab = {piece: place for place, piece in enumerate(PIECES)}
    steps = [{"type": "Prepend", "prepend": "▁"},
             {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]  # fmt: skip
    first = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    named = {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}
    whole = {
        "version": "1.0",
        "added_tokens": [
            {"id": n, "content": PIECES[n], "special": True, **ROLE} for n in range(3)
        ],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing", "single": first, "pair": first, "special_tokens": named,
        },
        "decoder": None,
        "model": {"type": "BPE", "vocab": vocab, "merges": MERGES.splitlines(),
                  "byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"},
    }  # fmt: skip
    (path / WHOLE).write_text(json.dumps(whole))


def marian(path, early=0.0, **generation):
    model, pieces, _ = translators.marian(path)
    for name in ("<unk>", "<pad>"):  # which are never written here
        model.final_logits_bias[0, pieces.index(name)] = -1e4
    model.final_logits_bias[0, 0] += early  # how early ends come
    model.save_pretrained(path)
    for name, value in {"num_beams": 1, "no_repeat_ngram_size": 1, **generation}.items():
        setattr(model.generation_config, name, value)
    model.generation_config.save_pretrained(path)


def several(path, kind="nllb", **changes):
    model = translators.multilingual(path, kind, **changes)
    model.save_pretrained(path)


def m2m_with_padding(path):
    """Another id of padding, from which the library counts positions."""
    make = transformers.M2M100Config
    several(path, "m2m")
    edit(path, "config.json", pad_token_id=5)
    edit(path, "generation_config.json", pad_token_id=5)
    config = make.from_pretrained(path)
    model = translators.randomize_weights(transformers.M2M100ForConditionalGeneration(config))
    for module in model.modules():
        if hasattr(module, "make_weights"):
            module.make_weights(module.weights.shape[0], module.embedding_dim, 5)
    model.save_pretrained(path)


def t5(path, **changes):
    test_t5.write(path, *test_t5.random_t5(**changes)[1:])


def encoder_differs(path, ours_path):
    """Largest difference of states, or of logits of labels, of an encoder."""
    imported = import_model(str(path), ours_path)
    ours = load_model_directory(ours_path, tasks=encoders.TASKS.values())
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    has_labels = ours.config.head == "labels"
    kind = "ModelForSequenceClassification" if has_labels else "Model"
    theirs = getattr(transformers, f"Auto{kind}").from_pretrained(path).eval()
    worst = 0.0
    for text in TEXTS:
        ids = ours.tokenizer.source.encode(text)
        foreign = tokenizer(text).input_ids
        assert [imported.ids[n] for n in (*ids, EOS_ID)] == foreign, "other tokens"
        batch = source_batch([ids], ours.config.max_positions, "cpu")
        answer = theirs(input_ids=torch.tensor([foreign]))
        with torch.no_grad():
            if has_labels:
                own, wanted = ours.encoder(*batch), answer.logits
            else:
                own = ours.encoder.encode(*batch)[:, : len(foreign)]  # there is padding
                wanted = answer.last_hidden_state
        worst = max(worst, (own - wanted).abs().max().item())
    return worst


def vectors_differ(path, ours_path):
    """Largest difference of the vectors of sentence-transformers."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    import_model(str(path), ours_path)
    texts = [*TEXTS, " ".join(TEXTS * 3)]
    wanted = sentence_transformers.SentenceTransformer(str(path), device="cpu").encode(texts)
    opened = open_model(ours_path, "embed", device="cpu")
    own = [result.vector for result in embed_texts(opened, texts)]
    return max(
        abs(torch.tensor(a) - torch.tensor(b)).max().item()
        for a, b in zip(own, wanted, strict=True)
    )


def decoder_differs(path, ours_path):
    """Largest difference of the logits of a language model."""
    imported = import_model(str(path), ours_path)
    ours = load_model_directory(ours_path, tasks=("language-model",))
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(path).eval()
    text = "First citizen, speak it's" if imported.kind.endswith("GPT-2") else "a b cd e"
    ids = ours.tokenizer.target.encode(text)
    ids = [BOS_ID, *ids] if ours.config.target_bos else ids
    foreign = [imported.ids[n] for n in ids]
    if imported.kind.endswith("GPT-2"):  # its own test compares LLaMA's with SentencePiece
        assert tokenizer(text).input_ids == foreign, "other tokens"
    with torch.no_grad():
        wanted = theirs(torch.tensor([foreign])).logits[0]
    own = test_gpt2.logits_of(ours, ids)
    kept = [n for n, row in enumerate(imported.ids) if own[0, n] > -1e8 and row >= 0]
    assert len(kept) >= len(PIECES) - 5
    return (own[:, kept] - wanted[:, [imported.ids[n] for n in kept]]).abs().max().item()


def bans(path):
    """Returns whether tokens besides padding are never written: their logits differ."""
    values = json.loads((path / GENERATION).read_text())
    return bool(values.get("suppress_tokens")) or len(values.get("bad_words_ids") or ()) > 1


def translations_differ(path, ours_path):
    """Largest difference of logits; translations must be those of the library's defaults."""
    kinds = {"marian": "MarianMTModel", "t5": "T5ForConditionalGeneration"}
    kind = json.loads((path / "config.json").read_text())["model_type"]
    model = getattr(transformers, kinds[kind]).from_pretrained(path).eval()
    difference = 0.0
    if kind == "marian" and not bans(path):
        difference = translators.logits_differ(path, model, ours_path)
    else:
        import_model(str(path), ours_path)
    ours = load_model_directory(ours_path)
    runs = ours.info.origin.ids
    foreign = [n for first, length in runs for n in range(first, first + length)]
    end = model.config.eos_token_id
    found_lines = translate_lines(ours_path, LINES, max_length_ratio=100.0)  # it has none
    for line, found in zip(LINES, found_lines, strict=True):
        ids = [foreign[n] for n in (*ours.tokenizer.source.encode(line), EOS_ID)]
        with torch.no_grad():
            written = model.generate(torch.tensor([ids]))[0, 1:].tolist()
        written = written[: written.index(end)] if end in written else written
        assert [foreign[n] for n in found.hypotheses[0].token_ids] == written, "other translations"
    return difference


def several_differ(path, ours_path):
    kind = json.loads((path / "config.json").read_text())["model_type"]
    name = {"m2m_100": "M2M100", "mbart": "MBart", "pegasus": "Pegasus"}[kind]
    model = getattr(transformers, f"{name}ForConditionalGeneration").from_pretrained(path).eval()
    return translators.logits_differ(path, model, ours_path)


def t5_differs(path, ours_path):
    model = transformers.T5ForConditionalGeneration.from_pretrained(path).eval()
    foreign = import_model(str(path), ours_path)
    own, wanted = test_t5.logits_of_both(model, foreign, load_model_directory(ours_path))
    return (own - wanted).abs().max().item()


CONFIG, GENERATION, WHOLE = "config.json", "generation_config.json", "tokenizer.json"
TOKENIZER, SENTENCES = "tokenizer_config.json", "config_sentence_transformers.json"
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
ROLE = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
ENTITY = {"id": 109, "content": "[E1]", "special": True, **ROLE}


def cases():
    """Name: what writes a directory, what compares it, and what is refused, if anything."""
    enc, dec, mul = encoder_differs, decoder_differs, several_differ

    def row(write, differs):
        def make_row(*edits, refused=None, **options):
            def write_model(path):
                write(path, **options)
                for file, values in edits:
                    edit(path, file, **values)

            return write_model, differs, refused

        return make_row

    b, s, g = row(bert, enc), row(with_sentences, vectors_differ), row(gpt2, dec)
    ll, m, n = row(llama, dec), row(marian, translations_differ), row(several, mul)
    t, g2, ll4 = row(t5, t5_differs), row(gpt2_in_both_forms, dec), row(llama_in_both_forms, dec)

    def add_entity(path):
        bert(path)
        stored = json.loads((path / WHOLE).read_text())
        edit(path, WHOLE, added_tokens=[*stored["added_tokens"], ENTITY])

    many = transformers.PretrainedConfig().to_dict()
    old = {"finetuning_task": "x", "torchscript": False, "pruned_heads": {}, "use_bfloat16": False,
           "task_specific_params": None, "xla_device": None, "_name_or_path": "me/it",
           "torch_dtype": "float32", "gradient_checkpointing": False, "output_past": True,
           "eos_token_ids": 0, "num_beams": 1, "top_k": 50, "typical_p": 1.0, "sep_token_id": None,
           "tie_encoder_decoder": False, "bad_words_ids": None, "language": "fr"}  # fmt: skip
    del many["transformers_version"]
    many = {
        key: value for key, value in many.items() if not re.search("label|model_type|is_enc", key)
    }
    digits = {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES],
    }
    lower = {"type": "Lowercase"}
    return {
        "BERT whose tokenizer.json keeps accents": b(
            (WHOLE, {"normalizer__strip_accents": False}), (TOKENIZER, {"strip_accents": False})
        ),
        "BERT whose vocab.txt's settings keep accents": b(
            (TOKENIZER, {"strip_accents": False}), files="parts"
        ),
        "BERT that does not part Chinese characters": b(
            (TOKENIZER, {"tokenize_chinese_chars": False}), files="parts"
        ),
        "BERT, cased, vocab.txt": b(lowercase=False, files="parts"),
        "BERT whose words have at most 8 characters": b(
            (WHOLE, {"model__max_input_chars_per_word": 8}),
            (TOKENIZER, {"tokenizer_class": "PreTrainedTokenizerFast"}),
        ),
        "BERT in chunks, with all of 4.x's settings": b(
            (CONFIG, {**many, **old, "architectures": ["BertModel"]}), chunk_size_feed_forward=3
        ),
        "BERT of five labels": b(head="ForSequenceClassification", num_labels=5),
        "BERT with never_split": b(
            (TOKENIZER, {"never_split": ["CAFÉ"]}), files="parts", refused="never_split"
        ),
        "BERT without basic words": b(
            (TOKENIZER, {"do_basic_tokenize": False}), files="parts", refused="do_basic_tokenize"
        ),
        "BERT whose two files lower-case differently": b(
            (TOKENIZER, {"do_lower_case": False}), refused="do_lower_case"
        ),
        "BERT with MeCab": b(
            (CONFIG, {"tokenizer_class": "BertJapaneseTokenizer"}), refused="tokenizer_class"
        ),
        "BERT with a further normalizer": b(
            (WHOLE, {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}}),
            refused="normalizer.type",
        ),
        "BERT with digits apart": b(
            (WHOLE, {"pre_tokenizer": {"type": "Digits", "individual_digits": True}}),
            refused="pre_tokenizer.type",
        ),
        "BERT without [CLS] and [SEP]": b(
            (WHOLE, {"post_processor": None}), refused="post_processor"
        ),
        "BERT with pieces of @@": b(
            (WHOLE, {"model__continuing_subword_prefix": "@@"}), refused="continuing_subword_prefix"
        ),
        "BERT with an added token": (add_entity, enc, "E1"),
        "BERT with another vocab.txt beside": (with_other_words, enc, "vocab.txt"),
        "DistilBERT, sinusoidal, cased": b(
            kind="distilbert", lowercase=False, sinusoidal_pos_embds=True
        ),
        "RoBERTa of two token types": b(kind="roberta", type_vocab_size=2),
        "RoBERTa whose padding is 3": b(
            kind="roberta", files="parts", pad_token_id=3, refused="pad_token_id = 3, from which"
        ),
        "RoBERTa with added_tokens.json": b(
            ("added_tokens.json", {"<mask>": 320}), kind="roberta", files="parts"
        ),
        "RoBERTa with a space before texts": b(
            (WHOLE, {"pre_tokenizer__add_prefix_space": True}),
            kind="roberta",
            refused="add_prefix_space",
        ),
        "RoBERTa with a space before texts, by settings": b(
            (TOKENIZER, {"add_prefix_space": True}),
            kind="roberta",
            files="parts",
            refused="add_prefix_space",
        ),
        "RoBERTa with NFKC": b(
            (WHOLE, {"normalizer": {"type": "NFKC"}}), kind="roberta", refused="normalizer.type"
        ),
        "sentences, length in tokenizer_config.json": s((TOKENIZER, {"model_max_length": 7})),
        "sentences, first token, length in both": s(
            ("sentence_bert_config.json", {"max_seq_length": 11}),
            (TOKENIZER, {"model_max_length": 20}),
            pooling="pooling_mode_cls_token",
        ),
        "sentences, prompts to choose": s(
            (SENTENCES, {"prompts": {"query": "q: ", "document": ""}})
        ),
        "sentences, an empty default prompt": s(
            (SENTENCES, {"prompts": {"document": ""}, "default_prompt_name": "document"})
        ),
        "sentences, a default prompt": s(
            (SENTENCES, {"prompts": {"query": "q: "}, "default_prompt_name": "query"}),
            refused="default_prompt_name",
        ),
        "sentences, fewer dimensions": s((SENTENCES, {"truncate_dim": 8}), refused="truncate_dim"),
        "sentences as written today": (saved_sentences, vectors_differ, None),
        "GPT-2 as written today": g(),
        "GPT-2, both forms of its vocabulary": g2(),
        "GPT-2 with digits apart": g(
            (WHOLE, {"pre_tokenizer": digits}), refused="pre_tokenizer.type"
        ),
        "GPT-2, both forms, one in small letters": g2(
            (WHOLE, {"normalizer": lower}), refused="normalizer.type"
        ),
        "GPT-2 in small letters": g((WHOLE, {"normalizer": lower}), refused="normalizer.type"),
        "GPT-2 with a start": g((TOKENIZER, {"add_bos_token": True}), refused="add_bos_token"),
        "GPT-2 whose texts end otherwise": g(
            (CONFIG, {"eos_token_id": 40}),
            (GENERATION, {"eos_token_id": 40}),
            refused="eos_token_id",
        ),
        "GPT-2 that samples": g(generation={"do_sample": True, "temperature": 0.7, "top_k": 5}),
        "GPT-2 with typical sampling": g(
            (GENERATION, {"do_sample": True, "typical_p": 0.9}), refused="typical_p"
        ),
        "LLaMA 1, without num_key_value_heads": ll(
            (CONFIG, {"num_key_value_heads": None}), num_key_value_heads=4
        ),
        "LLaMA with rope_theta beside": ll((CONFIG, {"rope_theta": 10000.0, "rope_scaling": None})),
        "LLaMA as version 4 writes it": ll4(),
        "LLaMA, no space before texts in tokenizer.json": ll4(
            (WHOLE, {"normalizer": None}), refused="differently"
        ),
        "LLaMA, another start in tokenizer.json": ll4(
            (WHOLE, {"post_processor": None}), refused="post_processor"
        ),
        "LLaMA without a start": ll((TOKENIZER, {"add_bos_token": False}), refused="add_bos_token"),
        "LLaMA with an end": ll((TOKENIZER, {"add_eos_token": True}), refused="add_eos_token"),
        "LLaMA with two ends": ll(
            (CONFIG, {"eos_token_id": [2, 5]}),
            (GENERATION, {"eos_token_id": [2, 5]}),
            refused="eos_token_id",
        ),
        "LLaMA with padded rows": ll(size=8, refused="resize_token_embeddings"),
        "Marian, repetition penalty in beams": m(
            renormalize_logits=False,
            early=0.7,
            num_beams=64,
            min_length=5,
            repetition_penalty=1.6,
            no_repeat_ngram_size=0,
        ),
        "Marian, no trigram twice": m(no_repeat_ngram_size=3),
        "Marian, at least 9 tokens": m(min_length=9),
        "Marian, at most 5 new tokens": m(max_new_tokens=5, max_length=None),
        "Marian, suppressed tokens": m(suppress_tokens=[44, 36, 7, 33]),
        "Marian, bad words": m(bad_words_ids=[[44], [36], [53]]),
        "Marian, bad words of two tokens": m(bad_words_ids=[[7, 8]], refused="bad_words_ids"),
        "Marian, sums of log-probabilities": m(
            renormalize_logits=False, early=0.7, num_beams=64, min_length=5, length_penalty=0.0
        ),
        "Marian, a forced start": m(forced_bos_token_id=7, refused="forced_bos_token_id"),
        "Marian, begin_suppress_tokens": m(
            begin_suppress_tokens=[7], refused="begin_suppress_tokens"
        ),
        "Marian, n-grams of the source": m(
            encoder_no_repeat_ngram_size=2, refused="encoder_no_repeat_ngram_size"
        ),
        "Marian, added_tokens_decoder": m(
            (TOKENIZER, {"added_tokens_decoder": {"0": {"content": "</s>", "special": True}}})
        ),
        "M2M-100 whose padding is 5": (m2m_with_padding, mul, None),
        "M2M-100 in silu": n(kind="m2m", activation_function="silu"),
        "NLLB that forces French": n((GENERATION, {"forced_bos_token_id": 54 + 4})),
        "NLLB of SMaLL-100": n(
            (TOKENIZER, {"tokenizer_class": "SMALL100Tokenizer"}), refused="tokenizer_class"
        ),
        "mBART, a length penalty": n((GENERATION, {"length_penalty": 0.8}), kind="mbart"),
        "T5, gated tanh": t(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
        "T5, another activation beside": t(
            (CONFIG, {"dense_act_fn": "silu"}), refused="dense_act_fn"
        ),
        "T5, a search in config.json": t(
            (CONFIG, {"num_beams": 2, "min_length": 4, "early_stopping": True})
        ),
        "T5, an added token": t(("added_tokens.json", {"<made up>": 50}), refused="made up"),
        "T5, another tokenizer.json beside": t(
            (WHOLE, {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0]]}}),
            refused="tokenizer.json",
        ),
    }


CASES = cases()


@contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers.logging.set_verbosity_error()
        yield


@pytest.mark.parametrize(
    "name", [pytest.param(case, marks=() if case in FAST else pytest.mark.slow) for case in CASES]
)
def test_an_odd_model_is_as_in_its_library_or_refused_by_name(tmp_path, name):
    write, differs, refused = CASES[name]
    with quiet():
        write(tmp_path / "theirs")
        if refused is None:
            assert differs(tmp_path / "theirs", tmp_path / "ours") <= CLOSE * 2
            return
        with pytest.raises(ArtifactError, match=re.escape(refused)):
            differs(tmp_path / "theirs", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def main():
    """Prints what became of each model."""
    for name, (write, differs, _) in CASES.items():
        if not any(word in name for word in sys.argv[1:] or [""]):
            continue
        with tempfile.TemporaryDirectory() as folder, quiet():
            path = Path(folder)
            try:
                write(path / "theirs")
                result = f"equal to {differs(path / 'theirs', path / 'ours'):.1e}"
            except ArtifactError as error:
                result = f"refused: {str(error).replace(folder, '')}"
            except Exception as error:  # noqa: BLE001 - shown
                result = f"FAILED: {type(error).__name__} {str(error)[:200]}"
        sys.stdout.write(f"| {name} | {result} |\n")


if __name__ == "__main__":
    main()
