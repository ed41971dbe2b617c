"""Checks the languages that bilingual files declare."""

from tformer_cli.documents.segments import ReadSettings
from tformer_cli.errors import DataError
from tformer_cli.text.language_codes import is_same_language


def check_target(settings: ReadSettings, declared: str, where: str) -> None:
    """Refuses a file whose declared target language is not that of the translation."""
    wanted = settings.target_language
    if declared and wanted and not is_same_language(declared, wanted):
        raise DataError(
            f"{settings.name}: is for {declared[:40]} ({where}), but the target language is "
            f"{wanted[:40]}; choose another file or language"
        )
