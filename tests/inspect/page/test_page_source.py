import json
import re
import subprocess
from importlib.resources import files
from shutil import which

import pytest

from tformer_cli.inspect.page.page_source import DATA_SLOT, SCRIPTS, empty_page, fill_page

COMMENT = re.compile(r"\s*(//|/\*)| \*")
PAGE = files("tformer_cli.inspect").joinpath("page")


def test_every_part_is_on_the_page_once_and_only_the_slot_for_data_is_left():
    text = empty_page("A title")
    assert sorted(SCRIPTS) == sorted(p.name for p in PAGE.iterdir() if p.name.endswith(".js"))
    for name in (*SCRIPTS, "style.css"):
        lines = PAGE.joinpath(name).read_text(encoding="utf-8").splitlines()
        code = [one.strip() for one in lines if one.strip() and not COMMENT.match(one)]
        if name.endswith(".css"):  # blanks at its braces and semicolons go
            assert text.replace(" ", "").count("\n".join(code).replace(" ", "")) == 1
        else:
            assert text.count("\n".join(code)) == 1
        assert not [one for one in code if one.count("`") % 2]  # no text goes over a line's end
    assert re.findall(r"\{\{\w+\}\}", text) == [DATA_SLOT]
    assert "<title>A title</title>" in text


def test_data_cannot_end_their_element_nor_stand_in_for_a_slot():
    hostile = {"text": "</script><!--{{data}}{{script}}&\u2028\u2029\udc80"}
    text = fill_page("t", hostile)
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1]
    assert json.loads(found)["text"] == "</script><!--{{data}}{{script}}&\u2028\u2029?"
    assert not re.search("[<>&\u2028\u2029]", found)


def test_ids_are_unique_and_those_that_the_script_asks_for_are_there():
    frame = PAGE.joinpath("page.html").read_text(encoding="utf-8")
    ids = re.findall(r'\bid="([\w-]+)"', frame)
    assert len(ids) == len(set(ids))
    script = "".join(PAGE.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    assert set(re.findall(r'byId\("([\w-]+)"\)', script)) <= set(ids)
    labeled = re.findall(r'aria-(?:labeledby|controls)="([\w-]+)"', frame)
    assert set(labeled) - {"tab-heads"} <= set(ids)  # the tab is made by the script


@pytest.mark.skipif(which("node") is None, reason="there is no node to read JavaScript with")
def test_the_script_is_one_that_parses(tmp_path):
    script = re.search(r"<script>\n(.*)</script>", empty_page("t"), re.DOTALL)[1]
    path = tmp_path / "page.js"
    path.write_text(script, encoding="utf-8")
    subprocess.run(["node", "--check", path], check=True)
