"""Writes the data of the sample report that ships with the package, from a quickstart model.

python tests/inspect/write_sample_report.py runs/quickstart

To be run anew when the page shows something that its data do not have; a test tells.
"""

import json
import sys
from pathlib import Path

from tformer_cli.inspect.frame import report_texts
from tformer_cli.inspect.pages import SAMPLE, report_data
from tformer_cli.inspect.view import ReportOptions
from tformer_cli.plugins.built_in.quickstart import FAMOUS
from tformer_cli.plugins.instruments.jobs.report import inspect_report

N_VECTORS = 16
"""Heads whose queries and keys are kept, so that the file stays small."""


def write_sample_report(run: str, path: Path) -> None:
    """Inspects the famous sentences with a model and writes what the page needs of the first."""
    data = report_data(
        inspect_report(run, FAMOUS[:2], options=ReportOptions(mode="live"), device="cpu", threads=1)
    )
    # The decision between the two is of the model; maps of both would be too large
    del data["sentences"][1:]
    data["model"] |= {"name": "quickstart"}
    for name in report_texts():  # the page of its day brings them
        del data[name]
    (sentence,) = data["sentences"]
    sentence["vectors"] = dict(list(sentence["vectors"].items())[:N_VECTORS])
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    folder = Path(__file__).parents[2] / "tformer_cli" / "guide"
    write_sample_report(sys.argv[1], folder / SAMPLE)
