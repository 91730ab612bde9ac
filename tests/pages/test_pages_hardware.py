"""Base and operator pages, with the numbers that were published."""

from __future__ import annotations

import pytest
from page_builders import OPERATOR_HEADS, base_result, base_text, known, lint, rules_of, table

from flagperf_publish.published.page_lint import lint_pages
from flagperf_publish.published.page_source import parse_page

C550 = {"vendor": "Metax", "product": "C550", "device": "曦云®C550 64G", "tdp": "450W"}
NO_POWER = ("/",) * 8


def test_a_page_that_holds_is_clean():
    page = lint(base_result("FP32算力", "19.05TFLOPS", "19.5TFLOPS", "97.7%"), "computation-FP32/README.md")
    assert page.case == "gemm"
    assert page.findings == ()


def test_65_of_64_gib():
    page = lint(base_result("主存储容量", "65.25", "64GiB", "101.95%", power=NO_POWER, **C550))
    assert rules_of(page) == ["unit_missing", "utilisation_over_100", "over_capacity", "decimal_unit"]
    assert str(page.findings[-1].message).endswith("taken as GB it is 60.77 GiB")


def test_75_percent_that_are_77():
    text = base_result("主存储带宽", "1390.5GB/s", "1.8TB/s", "75.44%", power=NO_POWER, **{**C550, "tdp": "350W"})
    page = lint(text)
    assert rules_of(page) == ["rated_differs", "ratio_does_not_recompute", "decimal_unit"]
    assert "1.8TB/s is multiplied by 1024" in str(page.findings[-1].message)


def operator(*rows: tuple[str, ...], path: str) -> list[str]:
    return rules_of(lint(base_text(OPERATOR_HEADS, *rows, cards=8), path))


def test_652_percent_of_fp32_is_tf32():
    path = "operation/benchmarks/mm/nvidia/A100_40_SXM/FP32_README.md"
    row = ("nativetorch", "True", "127.29TFLOPS", "127.09TFLOPS", "652.78%", "651.72%")
    assert set(operator(row, path=path)) == {"utilisation_over_100", "tf32_called_fp32"}


def test_a_rated_value_of_minus_one():
    row = ("flaggems", "True", "0.23TFLOPS", "0.23TFLOPS", "-23.01%", "-22.97%")
    assert set(operator(row, path="bitwise_and/nvidia/INT16_README.md")) == {"share_not_positive"}


def test_int8_at_12_percent():
    assert rules_of(lint(base_result("INT8算力", "76.04TOPS", "624TOPS", "12.2%"))) == ["far_below_peak"]


@pytest.mark.parametrize(
    ("power", "rules"),
    [
        (("4368.6W", "4368.0W", "10W", "/", "300W", "376W", "60W", "400W"), ["mean_above_max"]),
        (("3354W", "4524W", "500W", "/", "338.4W", "412.0W", "338.6W", "400W"), ["deviation_not_possible"]),
        (("3354W", "4524W", "1170W", "/", "317.2W", "376.0W", "83.7W", "400W"), ["constant_telemetry"]),
        (("4000W", "4000W", "0W", "/", "317.2W", "376.0W", "83.7W", "400W"), ["constant_telemetry"]),
        (("4000W", "4500W", "100W", "/", "70.2W", "72.0W", "0.0W", "400W"), ["deviation_not_possible", "idle_power"]),
        (("4000W", "4500W", "100W", "/", "317.2W", "492.8W", "83.7W", "400W"), ["over_tdp"]),
        (("200W", "215W", "5W", "/", "317.2W", "376.0W", "83.7W", "400W"), ["system_below_cards"]),
        (("14.59.0W", "4500W", "100W", "/", "317.2W", "376.0W", "83.7W", "400W"), ["unread_cell"]),
        (("4000W", "4500W", "100W", "/", "317.2W", "360.0W", "83.7W", "350W"), ["rated_differs"]),
    ],
)
def test_power_that_cannot_be(power, rules):
    assert rules_of(lint(base_result("FP32算力", "19.05TFLOPS", "19.5TFLOPS", "97.7%", power=power))) == rules


def test_labels_against_the_content():
    int8 = lint(
        base_result("BF16算力", "", "", "79.3%", power=NO_POWER, **C550), "computation-INT8/metax/C550/README.md"
    )
    assert rules_of(int8) == ["empty_cells", "ratio_without_operands", "precision_differs"]
    two = lint(base_result("FP32算力", "19.05TFLOPS", "19.5TFLOPS", "97.7%", cards=16, power=NO_POWER))
    assert rules_of(two) == ["card_count"]
    other = base_result("FP32算力", "18TFLOPS", "18TFLOPS", "100%", vendor="Metax", product="A100", power=NO_POWER)
    assert rules_of(lint(other)) == ["vendor_differs", "rated_differs"]


def test_more_bandwidth_than_the_memory_has():
    page = lint(base_result("主存储带宽", "1617GB/s", "1555GB/s", "103.99%", power=NO_POWER))
    assert rules_of(page) == ["utilisation_over_100", "above_bandwidth"]


def test_a_kernel_longer_than_the_wall_clock():
    text = base_text(OPERATOR_HEADS, ("native", "True", "1TFLOPS", "1TFLOPS", "5%", "5%"), power=NO_POWER)
    times = table(("评测项", "cputime", "kerneltime"), ("native", "173.57us", "189.44us"))
    assert rules_of(lint(f"{text}\n{times}")) == ["kernel_above_wall"]


def test_power_that_was_copied_from_another_page():
    text = base_result("FP32算力", "19.05TFLOPS", "19.5TFLOPS", "97.7%")
    pages = [parse_page(text, name) for name in ("a.md", "b.md")]
    found = [page for page in lint_pages(pages, known()) if not isinstance(page, Exception)]
    assert [rules_of(page) for page in found] == [["identical_figures"], ["identical_figures"]]
    assert "b.md" in str(found[0].findings[0].message)
