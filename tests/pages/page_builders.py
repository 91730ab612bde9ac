"""Pages in the forms that are published, with values of our own or with the published mistakes that rules are about."""

from __future__ import annotations

from collections.abc import Sequence

from flagperf.plugins.installed import load_plugins
from flagperf_publish.published.page_lint import Known, LintedPage, lint_page
from flagperf_publish.published.page_source import parse_page
from flagperf_publish.published.result_pages import installed_cards

COLUMNS = ("配置", "precision", "fix_hp", "e2e_time", "p_whole", "p_train", "p_core", "acc", "mem")
GENERAL = ("precision", "fix_hp", "mem", "e2e_time", "p_whole", "p_train", "p_core", "acc")


def table(heads: Sequence[str], *rows: Sequence[str]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def result_text(
    *rows: Sequence[str],
    title: str = "Nvidia GPU",
    device: str = "NVIDIA_A100-SXM4-40GB",
    short: str = "nvidia A100",
    model: str = "distilbert",
    dataset: str = "SST-2",
    columns: Sequence[str] = COLUMNS,
    listed: Sequence[str] = GENERAL,
    before: str = "",
    after: str = "",
) -> str:
    """A page of results; every check is content with it as it is."""
    entries = [("模型", model, ""), ("数据集", dataset, ""), ("硬件设备简称", short, "")]
    entries += [(f"指标{index}", f"{name},见“性能指标”", "") for index, name in enumerate(listed)]
    return (
        f"### {title}配置与运行信息参考\n#### 环境配置\n- ##### 硬件环境\n   - 加速卡型号：{device}\n"
        f"- ##### 软件环境\n   - OS版本：Ubuntu 20.04\n   - OS kernel版本: 5.4.0-113-generic\n{before}\n"
        f"### 运行情况\n* 通用指标\n\n{table(('指标名称', '指标值', '特殊说明'), *entries)}\n* 性能指标\n\n"
        f"{table(columns, *rows)}{after}"
    )


CLEAN_ROW = ("A100单机8卡（1x8）", "tf32", "/", "361", "1764.0", "1861.9", "1942.6", "0.915", "13.9/40.0")


def base_text(
    heads: Sequence[str],
    *values: Sequence[str],
    vendor: str = "Nvidia",
    product: str = "A100",
    device: str = "A100-40GiB-SXM",
    tdp: str = "400W",
    servers: int = 1,
    cards: int = 8,
    power: Sequence[str] = ("3954.6W", "3978.0W", "38.2W", "/", "317.2W", "376.0W", "83.7W", "400W"),
) -> str:
    names = ("系统平均功耗", "系统最大功耗", "系统功耗标准差", "单机TDP")
    names += ("单卡平均功耗(8卡平均)", "单卡最大功耗(8卡最大)", "单卡功耗标准差(8卡最大)", "单卡TDP")
    return (
        f"# 参评AI芯片信息\n\n* 厂商：{vendor}\n* 产品名称：{product}\n* 产品型号：{device}\n* TDP：{tdp}\n\n"
        f"# 所用服务器配置\n\n* 服务器数量：{servers}\n* 单服务器内使用卡数：{cards}\n\n# 评测结果\n\n"
        f"## 核心评测结果\n\n{table(('评测项', *heads), *values)}\n## 能耗监控结果\n\n"
        f"{table(('监控项', *names), ('监控结果', *power))}"
    )


def base_result(subject: str, value: str, rated: str, ratio: str, cards: int = 8, **fields: object) -> str:
    """One value with its rated value."""
    heads = [f"{subject}{what}({cards}卡平均)" for what in ("测试值", "标定值")] + [f"测试标定比例({cards}卡平均)"]
    return base_text(heads, ("评测结果", value, rated, ratio), **fields)  # type: ignore[arg-type]


OPERATOR_HEADS = (
    "correctness", "TFLOPS(cpu wall clock)", "TFLOPS(kernel clock)", "FU(FLOPS Utilization)-cputime", "FU-kerneltime",
)  # fmt: skip


def known() -> Known:
    """All that is installed here: the adapters of this repository and its cases."""
    plugins = load_plugins()
    return Known(installed_cards(plugins), {name: case.manifest for name, case in plugins.complete_cases().items()})


def lint(text: str, path: str = "page.md", case: str | None = None) -> LintedPage:
    return lint_page(parse_page(text, path), known(), case)


def rules_of(page: LintedPage) -> list[str]:
    return [finding.rule for finding in page.findings]
