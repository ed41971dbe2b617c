"""sacreBLEU's test sets by name; they are downloaded when they are first used."""

from pathlib import Path

from sacrebleu.dataset import DATASETS
from sacrebleu.utils import get_reference_files, get_source_file

from tformer_cli.errors import UsageError
from tformer_cli.wording import did_you_mean, suggestions


def files_of_test_set(name: str, language_pair: str | None) -> tuple[Path, list[Path]]:
    """Finds the source and the references of a test set."""
    if name not in DATASETS:
        hint = did_you_mean(suggestions(name, DATASETS)) or "`sacrebleu --list` lists them"
        raise UsageError(f"--test-set: sacreBLEU has no {name}; {hint}")
    dataset = DATASETS[name]
    if language_pair not in dataset.langpairs:
        found = f"; found {language_pair}" if language_pair else ""
        pairs = ", ".join(dataset.langpairs)
        raise UsageError(f"--language-pair: {name} has {pairs}{found}; name one of them")
    try:
        source = get_source_file(name, str(language_pair))
        references = get_reference_files(name, str(language_pair))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - of downloads, archives and parsers
        name_of = dataset._get_tarball_filename
        archives = [
            (url, Path(dataset._rawdir, name_of(url)))  # type: ignore[no-untyped-call]
            for url in dataset.data or ()
        ]
        by_hand = ", ".join(f"{url} as {path}" for url, path in archives)
        reason = " ".join(str(error).split())
        raise UsageError(
            f"--test-set: {name} cannot be downloaded ({reason}); store {by_hand}, and unpack it "
            "there"
        ) from None
    return Path(source), [Path(one) for one in references]
