"""Tags and a note beside the sealed files."""

import shutil
from pathlib import Path

import pytest
from recorded_bundles import recorded_bundle

from flagperf.bundle.paths import LABELS_FILE
from flagperf.bundle.run_record import Labels, checked_tag, read_labels, write_labels
from flagperf.bundle.verify import verify_bundle
from flagperf.errors import BadInput

RECORDED = recorded_bundle("distilbert")


def test_a_run_with_labels_still_verifies(tmp_path):
    bundle = Path(shutil.copytree(RECORDED, tmp_path / RECORDED.name))
    assert read_labels(bundle) == Labels()
    labels = Labels(("baseline", "driver-2.31"), "after the new driver\n\x1b[31m")
    write_labels(bundle, labels)
    assert read_labels(bundle) == labels
    assert verify_bundle(bundle).problems == ()


def test_labels_that_were_taken_back_leave_no_file(tmp_path):
    write_labels(tmp_path, Labels(("a",)))
    write_labels(tmp_path, Labels())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"[]", b'{"tags": "a"}', b"[" * 100_000, b"\xff"])
def test_a_file_that_is_not_ours_is_named(tmp_path, content):
    (tmp_path / LABELS_FILE).write_bytes(content)
    with pytest.raises(BadInput, match=r"labels\.json"):
        read_labels(tmp_path)


@pytest.mark.parametrize("word", ["", "a b", "-x", "x" * 65, "a/b", "a,b", "\x1b"])
def test_a_word_that_is_no_tag(word):
    with pytest.raises(BadInput, match="is not a tag"):
        checked_tag(word)


def test_a_tag_may_have_letters_of_any_language():
    assert checked_tag("沐曦-2.31") == "沐曦-2.31"
