"""Options of the commands that score translations."""

from typing import Annotated

from tformer_cli.cli.options import option
from tformer_cli.evaluation.choices import Tokenization

LowercaseOption = Annotated[bool, option("Ignore case when scoring.", "--lowercase")]
TokenizeOption = Annotated[
    Tokenization,
    option(
        "sacreBLEU's tokenizer for BLEU. ja-mecab and ko-mecab need the extras ja and ko; "
        "flores101, flores200 and spBLEU-1K the extra spm, and a model that is downloaded once."
    ),
]
