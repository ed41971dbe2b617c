"""Sentences of the grammar, and the files that hold them."""

import errno
import hashlib
from itertools import islice, pairwise
from unittest.mock import Mock

import pytest

from tformer_cli.errors import DataError
from tformer_cli.plugins.built_in.grammar import everyday, generate
from tformer_cli.plugins.built_in.grammar.choices import Choices
from tformer_cli.plugins.built_in.grammar.clauses import be, predicate
from tformer_cli.plugins.built_in.grammar.complex import winograd
from tformer_cli.plugins.built_in.grammar.generate import draw_pair, generate_corpus, split_of
from tformer_cli.plugins.built_in.grammar.phrases import Draft, pronoun
from tformer_cli.plugins.built_in.grammar.surface import (
    detokenize_english,
    detokenize_french,
    finish,
)
from tformer_cli.plugins.built_in.grammar.words import lexicon
from tformer_cli.plugins.built_in.make_corpus import write_corpus

N_PAIRS = 6000
TIRED = "The animal didn't cross the street because it was too tired."
WIDE = "The animal didn't cross the street because it was too wide."


@pytest.fixture(scope="module")
def corpus():
    return list(generate_corpus(N_PAIRS, seed=1))


def of(corpus, split):
    return [pair for name, pair in corpus if name == split]


def test_the_same_seed_gives_the_same_bytes_on_every_machine():
    digest = hashlib.sha256()
    for split, pair in generate_corpus(500, seed=7):
        digest.update(f"{split}\t{pair.source}\t{pair.target}\t{pair.pharaoh()}\n".encode())
    assert digest.hexdigest() == "4f2bed7a9ba4b3ad405c4ed27dca99afd3290b4b80a95e017941757e8dd859f5"


def test_another_seed_gives_other_sentences(corpus):
    other = {pair.source for _, pair in generate_corpus(200, seed=2)}
    assert len(other & {pair.source for _, pair in corpus[:220]}) < 60


def test_counts_are_those_asked_for_and_all_sentences_differ(corpus):
    assert [len(of(corpus, split)) for split in ("train", "valid", "test")] == [N_PAIRS, 300, 300]
    assert len({pair.source for _, pair in corpus}) == len(corpus)


def test_a_larger_corpus_begins_with_the_training_pairs_of_a_smaller(corpus):
    smaller = of(generate_corpus(400, seed=1), "train")
    assert of(corpus, "train")[:400] == smaller


def test_the_two_sentences_of_the_paper_are_test_material_only(corpus):
    targets = {pair.source: (split, pair.target) for split, pair in corpus}
    assert targets[TIRED] == (
        "test", "L'animal n'a pas traversé la rue parce qu'il était trop fatigué.",
    )  # fmt: skip
    assert targets[WIDE] == (
        "test", "L'animal n'a pas traversé la rue parce qu'elle était trop large.",
    )  # fmt: skip


def test_the_alignment_of_the_paper_sentence_is_right(corpus):
    pair = next(pair for _, pair in corpus if pair.source == WIDE)
    source, target = pair.source_words, pair.target_words
    named = {(source[i], target[j]) for i, j in pair.links}
    assert {("did", "a"), ("n't", "n'"), ("n't", "pas"), ("cross", "traversé"), ("it", "elle"),
            ("because", "parce"), ("because", "qu'"), ("wide", "large"),
            ("street", "rue")} <= named  # fmt: skip
    assert ("did", "traversé") not in named
    assert ("it", "était") not in named


def test_the_held_out_combination_is_never_training_material():
    draft = Draft(Choices(1))
    winograd(draft, "tired")
    assert split_of([*draft.combinations, "girl eat apple"]) == "test"


def test_one_test_combination_makes_the_whole_sentence_test_material():
    kinds = [split_of([f"a{i} see b{i}"]) for i in range(4000)]
    test = [i for i, kind in enumerate(kinds) if kind == "test"]
    assert 30 < len(test) < 100
    mixed = [split_of([f"a{i} see b{i}", f"a{test[0]} see b{test[0]}"]) for i in range(50)]
    assert set(mixed) == {"test"}


def test_training_sentences_contain_only_training_combinations(monkeypatch):
    rng = Choices(3)
    seen = {"train": set(), "valid": set(), "test": set()}
    original = generate.split_of

    def spy(combinations):
        split = original(combinations)
        seen[split] |= {c for c in combinations if original([c]) == split}
        return split

    monkeypatch.setattr(generate, "split_of", spy)
    for _ in range(5000):
        draw_pair(rng)
    assert seen["test"]
    assert seen["valid"]
    assert not seen["test"] & seen["train"]
    assert not seen["valid"] & (seen["train"] | seen["test"])


def test_links_are_sorted_in_range_and_leave_no_word_alone(corpus):
    for _, pair in corpus:
        assert list(pair.links) == sorted(set(pair.links))
        assert {i for i, _ in pair.links} == set(range(len(pair.source_words)))
        assert {j for _, j in pair.links} == set(range(len(pair.target_words)))


def test_the_text_is_the_detokenized_form_of_the_words(corpus):
    for _, pair in corpus:
        assert detokenize_english(pair.source_words) == pair.source
        assert detokenize_french(pair.target_words) == pair.target


def test_french_leaves_no_elision_or_contraction_undone(corpus):
    vowels = "aeéèêiouâîôœyh"
    for _, pair in corpus:
        words = [word.lower() for word in pair.target_words]
        for first, second in pairwise(words):
            if first in ("le", "la", "de", "ne", "que", "je", "se") and second[0] in vowels:
                assert second.startswith("h") or second == "onze", pair.target
            assert (first, second) not in {("de", "les"), ("à", "les"), ("de", "des")}
            if first in ("de", "à") and second == "le":
                pytest.fail(pair.target)


def test_everyday_sentences_have_their_translations(monkeypatch):
    monkeypatch.setattr(everyday, "LIKED", "food drink")  # all others would take too long
    rng = Choices(5)
    spoken = [(everyday.greeting, "!"), (everyday.saying, "."), (everyday.inquiry, "?"),
              (everyday.introduction, "."), (everyday.liking, "."), (everyday.liking_question, "?"),
              (everyday.suggestion, "!")]  # fmt: skip
    pairs = {}
    for construction, mark in spoken:
        for _ in range(3000):
            phrase = construction(Draft(rng))
            pair = finish(phrase.english, phrase.french, mark)
            pairs[pair.source] = pair.target
            assert {i for i, _ in pair.links} == set(range(len(pair.source_words))), pair
            assert {j for _, j in pair.links} == set(range(len(pair.target_words))), pair
    for source, target in {
        "Good morning, Paul!": "Bonjour, Paul !",
        "Thank you very much!": "Merci beaucoup !",
        "I don't know.": "Je ne sais pas.",
        "It is not true.": "Ce n'est pas vrai.",
        "Can you help me?": "Pouvez-vous m'aider ?",
        "What is your name?": "Comment vous appelez-vous ?",
        "How is your mother?": "Comment va votre mère ?",
        "How old is her brother?": "Quel âge a son frère ?",
        "My name is Anna.": "Je m'appelle Anne.",
        "His name is Paul.": "Il s'appelle Paul.",
        "This is Mary.": "Voici Marie.",
        "She is a nurse.": "Elle est infirmière.",
        "I'm an actor.": "Je suis acteur.",
        "I love pizza.": "J'adore la pizza.",
        "I don't like wine.": "Je n'aime pas le vin.",
        "Do you like apples?": "Aimez-vous les pommes ?",
        "Let's go!": "Allons-y !",
        "Let's go to the station!": "Allons à la gare !",
        "Let's dance!": "Dansons !",
    }.items():
        assert pairs[source] == target


def test_a_pronoun_and_its_auxiliary_are_often_one_word():
    rng, seen = Choices(2), {}
    for _ in range(4000):
        draft = Draft(rng)
        subject, adjective = pronoun(draft), draft.rng.pick(lexicon.ANIMATE[:5])
        main = be(draft, subject, draft.rng.pick(["present", "past", "future"]))
        phrase = main.extend(predicate(draft, adjective, subject)).statement()
        pair = finish(phrase.english, phrase.french, ".")
        seen[pair.source] = pair.target
    assert seen["I'm tired."] == seen["I am tired."] == "Je suis fatigué."
    assert seen["They'll be tired."] == seen["They will be tired."] == "Ils seront fatigués."
    assert not any(word in text for text in seen for word in ("'s was", "'swas", "was'", "'m not'"))


@pytest.mark.long
def test_every_word_of_the_evaluation_corpora_occurs_in_training():
    corpus = list(generate_corpus(20_000, seed=1))
    train = {word.lower() for pair in of(corpus, "train") for word in pair.source_words}
    held_out = {word.lower() for name, p in corpus if name != "train" for word in p.source_words}
    assert len(held_out - train) <= 4


def test_the_family_is_frequent_and_uses_both_genders(corpus):
    train = of(corpus, "train")
    family = [pair for pair in train if " because it " in pair.source]
    feminine = sum("qu'elle" in pair.target for pair in family)
    assert 0.05 < len(family) / len(train) < 0.12
    assert 0.3 < feminine / len(family) < 0.7


def test_each_english_sentence_has_one_translation():
    rng = Choices(9)
    translations = {}
    for _ in range(20_000):
        _, pair = draw_pair(rng)
        assert translations.setdefault(pair.source, pair.target) == pair.target


def test_sentences_are_of_mixed_length(corpus):
    lengths = [len(pair.source_words) for _, pair in corpus]
    assert min(lengths) <= 3
    assert max(lengths) >= 18
    assert 8 < sum(lengths) / len(lengths) < 12


def test_the_lexicon_has_more_than_400_lexemes_a_language():
    pools = (lexicon.TRANSITIVE, lexicon.PREPOSITIONAL, lexicon.INTRANSITIVE, lexicon.DITRANSITIVE)
    verbs = {verb for pool in pools for verb in pool.items}
    adjectives = [*lexicon.ANIMATE, *lexicon.HUMAN_ONLY, *lexicon.BEFORE, *lexicon.COLORS,
                  *lexicon.NATIONALITIES,
                  *(a for group in lexicon.THING_ADJECTIVES.values() for a in group)]  # fmt: skip
    for english in (True, False):
        lexemes = {n.english if english else n.french for n in lexicon.NOUNS}
        lexemes |= {v.english if english else v.infinitive for v in verbs}
        lexemes |= {a.english if english else a.masculine for a in adjectives}
        assert len(lexemes) > 400


@pytest.mark.parametrize("order", ["train valid test", "test train valid", "valid test test"])
def test_splits_read_in_any_order_are_those_of_the_corpus(order):
    corpus = list(generate_corpus(500, seed=1))
    reader = generate.SplitReader(500, seed=1)
    assert [*islice(reader.read("test"), 3)] == of(corpus, "test")[:3]
    for split in order.split():
        assert list(reader.read(split)) == of(corpus, split)


def test_readers_that_take_turns_do_not_disturb_each_other():
    corpus = list(generate_corpus(500, seed=1))
    reader = generate.SplitReader(500, seed=1)
    splits = ("valid", "train", "test")
    rows = list(zip(*map(reader.read, splits), strict=False))
    columns = zip(*rows, strict=True)
    for split, found in zip(splits, columns, strict=True):
        assert list(found) == of(corpus, split)[: len(rows)]


def test_the_held_out_pairs_are_not_generated_again_after_the_training_pairs(monkeypatch):
    monkeypatch.setattr(generate, "generate_corpus", generate_corpus)  # not what tests keep of it
    reader, drawn = generate.SplitReader(500, seed=1), []
    draw = generate.draw_pair
    monkeypatch.setattr(generate, "draw_pair", lambda rng: drawn.append(1) or draw(rng))
    n_pairs = {split: sum(1 for _ in reader.read(split)) for split in ("train", "valid", "test")}
    assert n_pairs == generate.split_sizes(500)
    at_once = len(drawn)
    drawn.clear()
    list(generate_corpus(500, seed=1))
    assert at_once == len(drawn)


@pytest.mark.parametrize("error", [DataError, KeyboardInterrupt])
def test_a_reader_that_was_ended_can_read_again(monkeypatch, error):
    monkeypatch.setattr(generate, "generate_corpus", generate_corpus)
    reader = generate.SplitReader(100, seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(generate, "split_of", Mock(side_effect=["valid", "train", error]))
        with pytest.raises(error):
            list(reader.read("test"))
    assert list(reader.read("test")) == of(generate_corpus(100, seed=1), "test")


def test_more_pairs_than_the_grammar_can_make_is_an_error(monkeypatch):
    only = generate.Pool([(lambda draft: winograd(draft, "tired"), ".")])
    monkeypatch.setattr(generate, "CONSTRUCTIONS", only)
    monkeypatch.setattr(generate, "PATIENCE", 50)
    with pytest.raises(DataError, match="makes 0, not 10 training pairs; ask for fewer"):
        list(generate_corpus(10))


def test_fewer_than_one_pair_is_an_error():
    with pytest.raises(DataError, match="must be at least 1"):
        generate_corpus(0)


def test_generation_streams():
    assert len(list(islice(generate_corpus(10**7), 50))) == 50


def test_all_files_are_written_line_by_line_in_step(tmp_path):
    seen = []
    counts = write_corpus(tmp_path / "corpus", 100, seed=3, progress=seen.append)
    assert counts == {"train": 100, "valid": 5, "test": 5}
    assert seen == [110]
    names = sorted(path.name for path in (tmp_path / "corpus").iterdir())
    suffixes = ("align", "en", "fr", "tok.en", "tok.fr")
    assert names == sorted(f"{s}.{e}" for s in counts for e in suffixes)
    train = [pair for split, pair in generate_corpus(100, 3) if split == "train"]
    expected = "".join(pair.target + "\n" for pair in train).encode()
    assert (tmp_path / "corpus" / "train.fr").read_bytes() == expected
    links = (tmp_path / "corpus" / "train.align").read_text().splitlines()
    assert links == [pair.pharaoh() for pair in train]
    words = (tmp_path / "corpus" / "train.tok.en").read_text(encoding="utf-8").splitlines()
    assert [line.split(" ") for line in words] == [list(pair.source_words) for pair in train]


def test_writing_again_replaces_the_files(tmp_path):
    write_corpus(tmp_path, 40, seed=1)
    first = (tmp_path / "train.en").read_text()
    write_corpus(tmp_path, 40, seed=2)
    assert (tmp_path / "train.en").read_text() != first


def test_a_file_in_the_way_is_an_error(tmp_path):
    path = tmp_path / "corpus"
    path.write_text("x")
    with pytest.raises(DataError, match=r"corpus: cannot be written \(file exists"):
        write_corpus(path, 10)


def test_an_interrupted_run_leaves_no_files_behind(tmp_path):
    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_corpus(tmp_path, 2000, progress=stop)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), None])
def test_a_failure_leaves_no_directory_that_it_has_made(tmp_path, monkeypatch, error):
    def fail(_):
        raise error

    n_pairs = 30
    if error is None:
        n_pairs = 0  # which the grammar refuses
    else:
        monkeypatch.setattr("os.fsync", fail)
    (tmp_path / "there").mkdir()
    with pytest.raises(DataError):
        write_corpus(tmp_path / "there" / "new" / "corpus", n_pairs)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    with pytest.raises(DataError):
        write_corpus(tmp_path / "there", n_pairs)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


@pytest.mark.parametrize("name", ["train.en", "valid.fr", "test.align"])
def test_foreign_files_are_kept(tmp_path, name):
    (tmp_path / name).write_text("mine\n")
    with pytest.raises(DataError, match=f"holds {name}, which this command did not write"):
        write_corpus(tmp_path, 30)
    assert (tmp_path / name).read_text() == "mine\n"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_corpus_with_a_foreign_file_is_not_replaced(tmp_path):
    write_corpus(tmp_path, 30)
    (tmp_path / "train.en").write_text("mine\n")
    with pytest.raises(DataError, match=r"holds train\.en, train\.fr, train\.tok\.en …, which"):
        write_corpus(tmp_path, 30)
    assert (tmp_path / "train.en").read_text() == "mine\n"
