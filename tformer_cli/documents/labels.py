"""Labels of languages in files of two languages."""

from tformer_cli.documents.segments import ReadSettings
from tformer_cli.errors import DataError
from tformer_cli.text.language_codes import is_same_language


def check_target(settings: ReadSettings, declared: str, where: str) -> None:
    """Refuses a file that is for another language than the one it is translated into."""
    wanted = settings.target_language
    if declared and wanted and not is_same_language(declared, wanted):
        raise DataError(
            f"{settings.name}: is for {declared[:40]} ({where}) and would be translated into "
            f"{wanted[:40]}; name another file or language"
        )
