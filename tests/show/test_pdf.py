"""Figures as PDF, read by pypdf, and rows as CSV."""

import csv
import hashlib
import io
import subprocess
import sys

import pytest

from tests.show.test_formats import draw_svg
from tformer_cli.errors import UsageError
from tformer_cli.files.regular_file import content_of
from tformer_cli.show import pdf
from tformer_cli.show.delimited import delimited_lines
from tformer_cli.show.pdf import render_pdf
from tformer_cli.wording import installing

LABELS = ("▁Кошка", "▁γάτα", "√d_k ≤ 1", "élève", 'a & <b> "c" #d $e$ @f')


def resources(part, wanted):
    """Yields the fonts or the pictures of a page and of all that it draws."""
    own = part.get("/Resources", {}).get_object()
    for entry in own.get(wanted, {}).values():
        yield entry.get_object()
    for entry in own.get("/XObject", {}).values():
        yield from resources(entry.get_object(), wanted)


@pytest.mark.needs("pdf")
@pytest.mark.parametrize("label", LABELS)
def test_a_pdf_holds_vectors_and_text_to_copy_in_its_own_fonts(label, tmp_path):
    from pypdf import PdfReader

    content = render_pdf(draw_svg("Zoë", label))
    reader = PdfReader(io.BytesIO(content))
    (page,) = reader.pages
    assert label in page.extract_text()
    assert [float(side) for side in page.mediabox[2:]] == pytest.approx([75, 45])  # CSS pixels
    fonts = list(resources(page, "/Font"))
    assert fonts
    for font in fonts:
        described = font["/DescendantFonts"][0]["/FontDescriptor"]
        assert any(name.startswith("/FontFile") for name in described)
    drawn = list(resources(page, "/XObject"))
    assert all(entry["/Subtype"] == "/Form" for entry in drawn)  # no picture
    assert reader.metadata.title == "Zoë"
    file = tmp_path / "a.pdf"
    file.write_bytes(content)
    assert content_of(file) == ("PDF", True)
    file.write_bytes(content.replace(b"tformer", b"another"))
    assert content_of(file) == ("PDF", False)


PROGRAM = """
import hashlib, sys
from tformer_cli.show.pdf import render_pdf
print(hashlib.sha256(render_pdf(sys.stdin.read())).hexdigest())
"""


@pytest.mark.needs("pdf")
def test_the_same_figure_gives_the_same_bytes_in_any_process():
    svg = draw_svg("▁chat")
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, input=svg, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == hashlib.sha256(render_pdf(svg)).hexdigest()
    assert render_pdf(draw_svg("▁chien")) != render_pdf(svg)


def test_without_typst_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(pdf, "find_spec", lambda _: None)
    with pytest.raises(UsageError) as refused:
        render_pdf(draw_svg())
    assert str(refused.value) == (
        f"--format pdf: needs typst; install it with {installing('pdf')}, or choose svg"
    )


def test_csv_is_read_back_by_the_standard_library_whatever_the_cells():
    rows = [("run", "x"), ("a,b", 1.5), ('say "no"', None), ("two\nlines", " "), ("é▁\t", "")]
    text = "".join(f"{line}\n" for line in delimited_lines(rows, "csv"))
    expected = [["" if cell is None else str(cell) for cell in row] for row in rows]
    assert list(csv.reader(io.StringIO(text, newline=""))) == expected
    assert list(delimited_lines(rows[:2], "tsv")) == ["run\tx", "a,b\t1.5"]
