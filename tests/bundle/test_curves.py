"""Curve files: what is written is what is read, and what cannot be read is said with its line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from curve_builders import curve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flagperf.bundle.curve_files import curve_text, read_curve
from flagperf.errors import BadInput
from flagperf.metrics.alignment import CurveData, CurvePoint

WRITTEN = """\
# flagperf loss curve 1
# case: "toy"
# case_version: 1
# run: "r-1"
# vendor: "acme"
# device: ""
# shape: "1x2"
# profile: "tiny"
# model: {"parameters":1000,"layers":2}
# data: [{"name":"a, \\"b\\": c","sha256":"00"}]
# steps: "1 to 2"
# values.training.seed: 0
# values.training.lr: 0.00001
step,loss,samples,remark
1,0.30000000000000004,8,
2,,8,step 2 has no finite loss on rank 0
"""

BARE = '# flagperf loss curve 1\n# case: "toy"\nstep,loss\n'


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "curve.csv"
    path.write_text(text, newline="")
    return path


def test_a_file_is_a_table_below_what_it_is_of() -> None:
    of: dict[str, Any] = {
        "run": "r-1",
        "vendor": "acme",
        "shape": "1x2",
        "profile": "tiny",
        "data": (CurveData('a, "b": c', "00"),),
        "values": {"training.seed": 0, "training.lr": 1e-5},
    }
    assert curve_text(curve([0.1 + 0.2, None], **of)) == WRITTEN


def test_what_was_written_reads_back_as_it_was(tmp_path: Path) -> None:
    assert curve_text(read_curve(written(tmp_path, WRITTEN))) == WRITTEN


# The folder may be shared: each example writes the whole file.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5),
    st.dictionaries(st.from_regex(r"[a-z]+\.[a-z_]+", fullmatch=True), st.text() | st.integers(-9, 9) | st.booleans()),
    st.text(),
)
def test_losses_are_bitwise_the_same_and_no_text_breaks_a_file(
    tmp_path: Path, losses: list[float | None], values: dict[str, Any], name: str
) -> None:
    before = curve(losses, values=values, vendor=name, data=(CurveData(name, "00"),))
    after = read_curve(written(tmp_path, curve_text(before)))
    assert after == before
    assert [repr(point.loss) for point in after.points] == [repr(loss) for loss in losses]


def test_a_curve_of_another_program_needs_no_more_than_case_steps_and_losses(tmp_path: Path) -> None:
    found = read_curve(written(tmp_path, BARE.replace("\n", "\r\n") + "5,2.5\r\n6, nan\r\n\r\n"))
    assert found.points == (CurvePoint(5, 2.5), CurvePoint(6, None, None, "the loss is nan"))
    assert (found.case, found.run, found.model, found.data, found.values) == ("toy", "", {}, (), {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is neither a run nor a loss curve"),
        ("step,loss\n1,2\n", "its first line is not '# flagperf loss curve 1'"),
        (BARE.replace("curve 1", "curve 2") + "1,2\n", "schema '2', but this flagperf reads schema 1"),
        (BARE, "there is no table of steps and losses"),
        (BARE.replace("step,loss", ""), "there is no table of steps and losses"),
        (BARE.replace('# case: "toy"\n', "") + "1,2\n", "missing required field `case`"),
        (BARE.replace('"toy"', "toy") + "1,2\n", "line 2: 'toy' is not JSON; put strings in double quotes"),
        (BARE.replace('"toy"', "[" * 100_000) + "1,2\n", "is not JSON"),
        (BARE.replace('"toy"', "5") + "1,2\n", "Expected `str`, got `int` - at `$.case`"),
        (BARE.replace('# case: "toy"', "# case") + "1,2\n", "line 2: '# case' is not `# name: value`"),
        (BARE.replace("step,", '# case: "b"\nstep,') + "1,2\n", "the name is repeated"),
        (BARE.replace("step,", "# sead: 1\nstep,") + "1,2\n", "unknown name 'sead' above the table; known: case, "),
        (BARE.replace("step,", "# points: []\nstep,") + "1,2\n", "unknown name 'points'"),
        (
            BARE.replace("step,", '# steps: "1 to 9"\nstep,') + "1,2\n2,2\n",
            "the header says steps 1 to 9, but the table",
        ),
        (BARE.replace("step,loss", "step,los") + "1,2\n", "line 3: the columns are step,los; known: step,loss,"),
        (BARE.replace("step,loss", "step,loss,loss") + "1,2,2\n", "line 3: the columns are step,loss,loss"),
        (BARE + "1,2\n3,2\n", "line 5: step 3 comes after step 1"),
        (BARE + "1,2\n1,2\n", "line 5: step 1 comes after step 1"),
        (BARE + "1,much\n", "line 4: 1,much does not match the columns step,loss"),
        (BARE + "1.5,2\n", "line 4: 1.5,2 does not match the columns step,loss"),
        (BARE + "1\n", "line 4 has 1 cells for 2 columns"),
        (BARE + '1,"2\n', "unexpected end of data"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadInput) as caught:
        read_curve(path)
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)


def test_what_is_no_text_or_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("binary", "neither a run nor"), ("pipe", "is a pipe"), ("nothing", "No such file")):
        with pytest.raises(BadInput, match=words):
            read_curve(tmp_path / name)
