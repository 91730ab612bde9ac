"""`flagperf pages lint` and `flagperf import` as people call them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from page_builders import CLEAN_ROW, base_result, result_text
from recorded_bundles import recorded_bundle

from flagperf.bundle.imported import imported_pages, imported_references
from flagperf.cli import cli, run_cli

BUNDLE = recorded_bundle("distilbert")
WRONG_ROW = (
    "A100两机8卡（2x8）",
    "tf32",
    "bs=96, lr=1e-05",
    "doing*",
    "3531.1",
    "3892.3",
    "3999.9",
    "91.1%",
    "32.9/40.0",
)


def flagperf(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(each) for each in arguments], standalone_mode=False)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "old.md"
    path.write_text(result_text(CLEAN_ROW, WRONG_ROW))
    return path


# --- lint -----------------------------------------------------------------------------------------------------------


def test_findings_are_lines_that_editors_know_and_the_exit_code_is_7(page: Path):
    done = flagperf("pages", "lint", page)
    assert done.return_value == 7
    lines = done.stdout.splitlines()
    assert all(line.startswith(f"{page}:") for line in lines)
    assert any(": card_count: " in line for line in lines)
    assert any(": unread_cell: column e2e_time: 'doing*'" in line for line in lines)
    assert "2 findings" in done.stderr
    page.write_text(result_text(CLEAN_ROW))
    done = flagperf("pages", "lint", page, "-q")
    assert (done.return_value, done.output) == (0, "")


def test_json_has_the_page_its_findings_and_what_holds(page: Path):
    done = flagperf("pages", "lint", page, "--json")
    (found,) = json.loads(done.stdout)["pages"]
    assert (found["case"], found["path"]) == ("distilbert", str(page))
    assert {each["rule"] for each in found["findings"]} >= {"card_count", "unread_cell"}
    assert all(each["line"] > 0 and each["text"] and each["message"]["code"] for each in found["findings"])


def test_what_cannot_be_read_is_named_and_the_others_are_checked(page: Path, tmp_path: Path):
    binary = tmp_path / "binary.md"
    binary.write_bytes(b"\0\1")
    done = flagperf("pages", "lint", tmp_path / "gone.md", page, binary, tmp_path)
    assert done.return_value == 2
    assert "card_count" in done.stdout
    for word in ("gone.md: No such file", "binary.md is not a page", "is a folder"):
        assert word in done.stderr


def test_controls_of_a_page_never_reach_the_terminal(tmp_path: Path):
    path = tmp_path / "evil.md"
    path.write_text(result_text(("A100\x1b[2J单机8卡（1x8）", *CLEAN_ROW[1:-1], "\x1b]0;x\x07/40")))
    for command in (("pages", "lint", path), ("import", path, "--dry-run")):
        done = flagperf(*command)
        assert "\x1b" not in done.output
        assert "\x07" not in done.output


# --- import ---------------------------------------------------------------------------------------------------------


def test_a_page_becomes_references_with_line_hash_and_grade(page: Path, tmp_path: Path):
    done = flagperf("import", page, "--runs-dir", tmp_path)
    assert done.return_value == 0
    assert "2 results of distilbert, imported" in done.stdout
    assert "e2e_time: 'doing*' is not a value" in done.stderr
    assert "card_count" in done.stderr
    first, second = imported_references("distilbert", tmp_path)
    assert (first.vendor, first.device, first.grade) == ("nvidia", "A100-SXM4-40GB", "typed_by_hand")
    assert page.read_text().split("\n")[second.line - 1].startswith("| A100两机8卡")
    assert second.overrides == "bs=96, lr=1e-5"
    assert (second.nodes, second.devices_per_node, second.precision) == (2, 8, "tf32")
    assert second.values == {
        "p_whole": 3531.1, "p_train": 3892.3, "p_core": 3999.9, "acc": 0.911,
        "mem_used": round(32.9 * 2**30), "mem_total": 40 * 2**30,
    }  # fmt: skip
    (stored,) = imported_pages(tmp_path)
    assert len(stored.sha256) == 64


def test_importing_again_changes_nothing(page: Path, tmp_path: Path):
    flagperf("import", page, "--runs-dir", tmp_path)
    (file,) = (tmp_path / "references").iterdir()
    before = (file.read_bytes(), file.stat().st_mtime_ns)
    again = flagperf("import", page, "--runs-dir", tmp_path)
    moved = shutil.copy(page, tmp_path / "elsewhere.md")
    copied = flagperf("import", moved, "--runs-dir", tmp_path)
    assert "unchanged" in again.stdout
    assert "unchanged" in copied.stdout
    assert [each.name for each in (tmp_path / "references").iterdir()] == [file.name]
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


def test_a_dry_run_writes_nothing(page: Path, tmp_path: Path):
    done = flagperf("import", page, "--runs-dir", tmp_path / "runs", "--dry-run", "--json")
    (found,) = json.loads(done.stdout)["pages"]
    assert found["outcome"] == "would be imported"
    assert len(found["references"]) == 2
    assert found["remarks"][0]["what"] == "e2e_time"
    assert not (tmp_path / "runs").exists()


def test_imported_results_stand_beside_runs(page: Path, tmp_path: Path):
    shutil.copytree(BUNDLE, tmp_path / BUNDLE.name)
    flagperf("import", page, "--runs-dir", tmp_path)
    for command in (("report", "latest"), ("runs", "show", "latest")):
        assert "(old.md:" in flagperf(*command, "--runs-dir", tmp_path, "--published").stdout
    for lang, grade in (("en", "(typed by hand)"), ("zh", "（手工填写）")):
        command = ("report", "latest", "--runs-dir", tmp_path, "--published", "--format", "md", "--lang", lang)
        text = flagperf(*command).stdout
        assert grade in text
        assert "3999.9" in text
    assert "3999.9" not in flagperf("report", "latest", "--runs-dir", tmp_path, "--no-published").stdout
    assert "references" not in flagperf("runs", "list", "--runs-dir", tmp_path).stdout


def test_a_result_that_the_case_has_already_is_shown_once(tmp_path: Path):
    shutil.copytree(BUNDLE, tmp_path / BUNDLE.name)
    row = ("A100单机8卡（1x8）", "fp32", "/", "361", "1764.0", "1861.9", "1942.6", "0.915", "13.9/40.0")
    (tmp_path / "same.md").write_text(result_text(row))
    assert flagperf("import", tmp_path / "same.md", "--runs-dir", tmp_path).return_value == 0
    assert flagperf("report", "latest", "--runs-dir", tmp_path, "--published").stdout.count("1942.6") == 1


def test_a_base_page_becomes_a_figure(tmp_path: Path):
    path = tmp_path / "base.md"
    path.write_text(base_result("FP32算力", "19.05TFLOPS", "19.5TFLOPS", "97.7%"))
    assert flagperf("import", path, "--runs-dir", tmp_path).return_value == 0
    (found,) = imported_references("gemm", tmp_path)
    assert found.values == {"gemm_fp32": 19.05}
    assert (found.device, found.overrides) == ("A100-SXM4-40GB", "8 devices busy")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (result_text(CLEAN_ROW, model="unknown"), "say which with --case"),
        (
            result_text(CLEAN_ROW, device="some card", short="?").replace("A100单机", "X9单机"),
            "give --vendor and --device",
        ),
        (result_text(("A100单机8卡（1x8）", "amp", *CLEAN_ROW[2:])), "'amp' is not one of this case's"),
        (base_result("主存储容量", "65.25", "64GiB", "101.95%"), "'65.25' is not a value with a unit"),
        (base_result("服务器内P2P带宽", "515GB/s", "600GB/s", "85.8%"), "links or operators"),
        ("# nothing\n", "no table of results"),
    ],
)
def test_what_is_not_clear_is_not_imported(text, said, tmp_path: Path):
    path = tmp_path / "page.md"
    path.write_text(text)
    done = flagperf("import", path, "--runs-dir", tmp_path)
    assert done.return_value == 2
    assert said in done.stderr
    assert not (tmp_path / "references").exists()


def test_the_user_can_say_what_the_page_does_not(tmp_path: Path):
    path = tmp_path / "page.md"
    path.write_text(result_text(CLEAN_ROW, model="?", device="some card", short="?").replace("A100单机", "X9单机"))
    said = ("--case", "distilbert", "--vendor", "acme", "--device", "X9-40GB")
    assert flagperf("import", path, "--runs-dir", tmp_path, *said).return_value == 0
    (found,) = imported_references("distilbert", tmp_path)
    assert (found.vendor, found.device) == ("acme", "X9-40GB")


@pytest.mark.parametrize("content", ["not toml", "case = 3\n"])
@pytest.mark.parametrize("command", ["report", "runs show"])
def test_a_broken_file_of_imported_results_can_be_left_out(
    content: str, command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    shutil.copytree(BUNDLE, tmp_path / BUNDLE.name)
    broken = tmp_path / "references" / "old.toml"
    broken.parent.mkdir()
    broken.write_text(content)
    asked = [*command.split(), "latest", "--runs-dir", str(tmp_path)]
    assert run_cli(asked) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert str(broken) in line
    assert line.endswith("; --no-published leaves out imported results")
    assert run_cli([*asked, "--no-published"]) == 0


def test_a_broken_file_of_imported_results_is_said_before_a_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / "old.toml").write_text("not toml")
    command = ["run", "distilbert", "--vendor", "cpu", "--runs-dir", str(tmp_path), "--dry-run"]
    assert run_cli(command) == 2
    assert "--no-published leaves out imported results" in capfd.readouterr().err
    assert run_cli([*command, "--no-published"]) == 0
