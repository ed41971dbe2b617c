import json
import subprocess
import sys

import pytest

from tformer_cli.errors import DataError
from tformer_cli.metrics.scores import bleu, check_counts, chrf, ter

HYPOTHESES = ["The cat sat on a mat .", "He doesn't know, does he?", "", "It rained yesterday."]
REFERENCES = [
    ["The cat sat on the mat.", "He does not know, does he?", "Nothing.", "It rained yesterday."],
    ["A cat sat on the mat.", "He doesn't know it, does he?", "", "Yesterday it rained."],
]


def sacrebleu_says(tmp_path, hypotheses, references, *options):
    """Scores and signatures of sacreBLEU's own command."""
    files = []
    for name, lines in (("hyp", hypotheses), *((f"ref{i}", r) for i, r in enumerate(references))):
        file = tmp_path / name
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        files.append(str(file))
    command = [sys.executable, "-m", "sacrebleu", *files[1:], "-i", files[0], "-f", "json"]
    command += ["-m", "bleu", "chrf", "ter", "-w", "10", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("n_references", [1, 2])
@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_are_those_of_sacrebleu_itself(tmp_path, n_references, lowercase):
    references = REFERENCES[:n_references]
    options = ["-lc", "--chrf-lowercase"] if lowercase else ["--ter-case-sensitive"]
    for ours, theirs in zip(
        (metric(HYPOTHESES, references, lowercase=lowercase) for metric in (bleu, chrf, ter)),
        sacrebleu_says(tmp_path, HYPOTHESES, references, *options),
        strict=True,
    ):
        assert ours.name == theirs["name"]
        assert ours.value == pytest.approx(theirs["score"], abs=1e-9)
        for part in ("nrefs", "case", "tok", "version"):
            found = dict(field.split(":") for field in ours.signature.split("|"))
            if part in theirs:
                assert found[part] == str(theirs[part])


def test_a_pinned_score():
    assert bleu(["a b c d e"], [["a b c d f"]]).value == pytest.approx(66.87403049764218)
    assert bleu(["A B C D"], [["a b c d"]]).value == pytest.approx(0.0)
    assert bleu(["A B C D"], [["a b c d"]], lowercase=True).value == pytest.approx(100.0)


def test_signatures_say_how():
    assert bleu(HYPOTHESES, REFERENCES).signature.startswith(
        "nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:"
    )
    assert "case:lc" in bleu(HYPOTHESES, REFERENCES, lowercase=True).signature
    assert "tok:intl" in bleu(HYPOTHESES, REFERENCES, tokenize="intl").signature


def test_different_numbers_of_lines_are_an_error_with_both_numbers():
    with pytest.raises(DataError, match=r"the hypotheses, reference 2: different .* \(3 and 4\);"):
        bleu(HYPOTHESES[:3], [REFERENCES[0][:3], REFERENCES[1]])
    with pytest.raises(DataError, match="has no lines"):
        bleu([], [[]])
    check_counts([("a", 2), ("b", 2)])
