"""Every text of a page in both languages, as data; codes.py has those of reasons and marks. Other modules of this
package hold no sentence that a page prints.

A name with a kind after a dot (`general.inference`) is the wording for cases of that kind, the bare name for all
others. Names of metrics and columns are the same in both languages, so that a parser can match rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from flagperf.report.codes import CODES, DETAILS
from flagperf.report.phrases import in_chinese

Lang = Literal["en", "zh"]


def choose(text: Mapping[str, str], lang: Lang) -> str:
    """A text that a case or an adapter brought: in the language, else in English, else in any."""
    return text.get(lang) or text.get("en") or next(iter(text.values()), "")


def say(name: str, lang: Lang, /, **values: object) -> str:
    return SENTENCES[name][lang].format(**values)


def label(name: str, lang: Lang, kind: str = "") -> str:
    return LABELS.get(f"{name}.{kind}", LABELS[name])[lang]


def explain(code: str, lang: Lang, detail: str = "") -> str:
    """A reason or a mark: its code, what that means, what was seen in this run (a key of DETAILS, or its own words)."""
    detail = DETAILS[detail][lang] if detail in DETAILS else recorded_words(detail, lang)
    if lang == "zh":
        return f"{code}（{meaning(code, lang)}）" + (f"：{detail}" if detail else "")
    return f"{code} ({meaning(code, lang)})" + (f": {detail}" if detail else "")


def meaning(code: str, lang: Lang) -> str:
    return CODES[code][lang] if code in CODES else code


def recorded_words(text: str, lang: Lang) -> str:
    """What core wrote down in English, in the language of the page as far as the words are ours."""
    return in_chinese(text) if lang == "zh" else text


def listed(items: list[str], lang: Lang) -> str:
    return ("、" if lang == "zh" else ", ").join(items)


def clauses(items: list[str], lang: Lang) -> str:
    return ("；" if lang == "zh" else "; ").join(item for item in items if item)


LABELS: dict[str, dict[Lang, str]] = {
    # sections and tables
    "download_checkpoint": {"en": "Model checkpoint", "zh": "模型Checkpoint下载"},
    "download_dataset": {"en": "Test dataset", "zh": "测试数据集下载"},
    "environment": {"en": "Environment", "zh": "环境配置"},
    "hardware": {"en": "Hardware", "zh": "硬件环境"},
    "software": {"en": "Software", "zh": "软件环境"},
    "results": {"en": "Results", "zh": "运行情况"},
    "results.inference": {"en": "4. Results", "zh": "4. 运行情况"},
    "data_section": {"en": "1. Dataset", "zh": "1. 推理数据集"},
    "model_section": {"en": "2. Model and weights", "zh": "2. 模型与权重"},
    "machine_section": {"en": "3. Hardware and software", "zh": "3. 软硬件配置与运行信息参考"},
    "engine_section": {"en": "Inference engine", "zh": "推理工具包"},
    "general": {"en": "General", "zh": "通用指标"},
    "general.inference": {"en": "Metric list", "zh": "指标列表"},
    "performance": {"en": "Performance", "zh": "性能指标"},
    "performance.inference": {"en": "Values", "zh": "指标值"},
    "published": {"en": "Published results of this case, for comparison", "zh": "已发布结果（供对照）"},
    "head_name": {"en": "Metric", "zh": "指标名称"},
    "head_value": {"en": "Value", "zh": "指标值"},
    "head_value.inference": {"en": "Value index", "zh": "指标值索引"},
    "head_remark": {"en": "Remarks", "zh": "特殊说明"},
    "configuration": {"en": "Configuration", "zh": "配置"},
    "case": {"en": "Case", "zh": "用例"},
    "source": {"en": "Source", "zh": "来源"},
    # subjects of notes
    "notes": {"en": "Notes", "zh": "注"},
    "about_measured": {"en": "Runs", "zh": "运行"},
    "about_configuration": {"en": "Configuration", "zh": "配置"},
    "about_environment": {"en": "Environment", "zh": "环境"},
    "about_timing": {"en": "Timing", "zh": "计时"},
    "about_quality": {"en": "Quality", "zh": "质量"},
    "about_memory": {"en": "Memory", "zh": "存储"},
    "about_mfu": {"en": "MFU", "zh": "MFU"},
    "about_alignment": {"en": "Loss alignment", "zh": "精度对齐"},
    "about_data": {"en": "Data files", "zh": "数据文件"},
    # environment
    "machine": {"en": "Machine", "zh": "机器型号"},
    "accelerator": {"en": "Accelerator", "zh": "加速卡型号"},
    "cpu": {"en": "CPU", "zh": "CPU型号"},
    "network": {"en": "Network", "zh": "多机网络类型、带宽"},
    "os": {"en": "OS", "zh": "OS版本"},
    "kernel": {"en": "Kernel", "zh": "OS kernel版本"},
    "driver": {"en": "Driver", "zh": "加速卡驱动版本"},
    "container": {"en": "Container", "zh": "容器"},
    "docker": {"en": "Docker", "zh": "Docker 版本"},
    "framework": {"en": "Framework", "zh": "训练框架版本"},
    "framework.inference": {"en": "Framework", "zh": "推理框架版本"},
    "packages": {"en": "Dependencies", "zh": "依赖软件版本"},
    # further parts
    "parallelism": {"en": "Parallelism", "zh": "并行策略"},
    "parallel_technique": {"en": "Technique", "zh": "并行技术"},
    "parallel_library": {"en": "Implemented by", "zh": "实施者"},
    "parallel_details": {"en": "Details", "zh": "实施细节"},
    "optimisation": {"en": "Optimisation", "zh": "优化策略"},
    "optimisation_method": {"en": "Method", "zh": "优化方案"},
    "optimisation_details": {"en": "Details", "zh": "方案细节"},
    "batch_size": {"en": "Input batch size", "zh": "输入批尺寸"},
    # rows of the general table
    "row_task": {"en": "Task", "zh": "任务类别"},
    "row_model": {"en": "Model", "zh": "模型"},
    "row_dataset": {"en": "Dataset", "zh": "数据集"},
    "row_precision": {"en": "Precision", "zh": "数据精度"},
    "row_parallel": {"en": "Parallel layout", "zh": "超参修改"},
    "row_fix_hp": {"en": "Overrides", "zh": "超参修改"},
    "row_device": {"en": "Device", "zh": "硬件设备简称"},
    "row_mem": {"en": "Device memory", "zh": "硬件存储使用"},
    "row_e2e_time": {"en": "End-to-end time", "zh": "端到端时间"},
    "row_p_whole": {"en": "Overall throughput", "zh": "总吞吐量"},
    "row_p_train": {"en": "Training throughput", "zh": "训练吞吐量"},
    "row_p_core": {"en": "Compute throughput", "zh": "计算吞吐量"},
    "row_token/p/s": {"en": "Tokens per second per device", "zh": "吞吐量"},
    "engine": {"en": "Engine", "zh": "推理工具"},
    "row_engine": {"en": "Engine", "zh": "推理工具"},
    "row_p_val_whole": {"en": "Framework throughput, overall", "zh": "验证总吞吐量"},
    "row_p_val_core": {"en": "Framework throughput, compute", "zh": "验证计算吞吐量"},
    "row_p_infer_whole": {"en": "Engine throughput, overall", "zh": "推理总吞吐量"},
    "row_p_infer_core": {"en": "Engine throughput, compute", "zh": "推理计算吞吐量"},
    "row_p_infer_padded": {"en": "The same, padding counted", "zh": "推理计算吞吐量（含填充）"},
    "row_mfu": {"en": "MFU", "zh": "计算使用率"},
    "row_mfu.inference": {"en": "MFU", "zh": "计算卡使用率"},
    "row_loss": {"en": "Loss", "zh": "训练损失"},
    "row_loss.inference": {"en": "Loss", "zh": "推理结果"},
    "loss_aligned": {"en": "Loss aligned", "zh": "是否精度对齐"},
    "row_loss_aligned": {"en": "Loss alignment", "zh": "精度对齐"},
    "row_result": {"en": "Quality", "zh": "训练结果"},
    "row_result.inference": {"en": "Result", "zh": "推理结果"},
    "row_extra": {"en": "Other changes", "zh": "额外修改项"},
}

REMARKS: dict[str, dict[Lang, str]] = {
    "precision": {"en": "what really computed; possible: {precisions}", "zh": "实际计算精度，可选{precisions}"},
    "parallel": {"en": "ways of tensor, pipeline and data parallelism", "zh": "张量、流水线、数据并行的路数"},
    "fix_hp": {"en": "changes against the case's standard configuration", "zh": "相对标准配置的改动"},
    "mem": {
        "en": "peak of one device over its total, GiB",
        "zh": "运行期间单卡峰值/设备总量，单位GiB",
    },
    "e2e_time": {
        "en": "from the start of the first process to the end of the last, s",
        "zh": "从首个进程启动到最后一个进程结束，单位秒",
    },
    "p_whole": {
        "en": "real samples of the steps after warm-up over the time from then to the end of training, evaluation "
        "included, {unit}",
        "zh": "预热后各步的真实样本数÷从预热结束到训练结束的时间（含评估），单位{unit}",
    },
    "p_train": {"en": "without evaluation and logging, {unit}", "zh": "不含评估与日志，单位{unit}"},
    "p_core": {
        "en": "compute and communication only; p_core ≥ p_train ≥ p_whole, {unit}",
        "zh": "只含计算与通信，p_core≥p_train≥p_whole，单位{unit}",
    },
    "token/p/s": {
        "en": "real tokens per device and second, padding excluded",
        "zh": "每卡每秒处理的真实token数（不含填充）",
    },
    "mfu": {
        "en": "formula {formula}; N, peak and the peak's source are in the notes",
        "zh": "公式{formula}，N、峰值及其来源见注",
    },
    "p_val_whole": {"en": "by the plain framework, {unit}", "zh": "由框架直接推理，单位{unit}"},
    "p_val_core": {"en": "by the plain framework, {unit}", "zh": "由框架直接推理，单位{unit}"},
    "p_infer_whole": {
        "en": "of the whole system; real work over the time of the whole loop, {unit}",
        "zh": "全系统，真实工作量÷推理循环总时间，单位{unit}",
    },
    "p_infer_core": {
        "en": "compute and communication only; p_infer_core ≥ p_infer_whole, {unit}",
        "zh": "只含计算与通信，p_infer_core≥p_infer_whole，单位{unit}",
    },
    "p_infer_padded": {
        "en": "as p_infer_core, with the positions that held padding counted too, {unit}",
        "zh": "同p_infer_core，但计入填充位置，单位{unit}",
    },
    "loss": {"en": "training loss of the last step", "zh": "训练最后一步的损失"},
    "loss_aligned": {
        "en": "whether the loss follows a reference step by step; rule, reference and mean error are in the notes",
        "zh": "各步损失是否与参考曲线一致，规则、参考与平均相对误差见注",
    },
    "result": {"en": "target {target}; reached or not: see the notes", "zh": "目标{target}，是否达到见注"},
}
"""Remark of a row of the general table; a case overrides one in page.remarks."""

SENTENCES: dict[str, dict[Lang, str]] = {
    "heading": {"en": "{subject}: configuration and results", "zh": "{subject} 配置与运行信息参考"},
    "line": {"en": "{label}: {value}", "zh": "{label}：{value}"},
    "see": {"en": "{columns}, see “{table}”", "zh": "{columns},见“{table}”"},
    "none": {"en": "none", "zh": "无"},
    "stated": {"en": "{value} (stated)", "zh": "{value}（声明）"},
    "published_of": {"en": "Published results of {cases}, for comparison", "zh": "{cases}的已发布结果（供对照）"},
    "published_bare": {"en": "Published without figures: {names}", "zh": "已发布但没有数值：{names}"},
    "this_run": {"en": "this run", "zh": "本次运行"},
    "this_row": {"en": "row {row}", "zh": "第{row}行"},
    "headlines": {"en": "*: headline metric", "zh": "*：主要指标"},
    "text_of_row": {"en": "{text} (row {rows})", "zh": "{text}（第{rows}行）"},
    "text_of_rows": {"en": "{text} (rows {rows})", "zh": "{text}（第{rows}行）"},
    "one_row": {"en": "Row {rows}: {text}", "zh": "第{rows}行：{text}"},
    "some_rows": {"en": "Rows {rows}: {text}", "zh": "第{rows}行：{text}"},
    "applies_to": {"en": "applies to {configurations}", "zh": "适用于{configurations}"},
    "accelerator": {"en": "{model}, {memory}", "zh": "{model}，{memory}"},
    "with_counts": {"en": "{value}, devices used per node: {counts}", "zh": "{value}，每机使用{counts}卡"},
    "memory_size": {"en": "{gib} GiB", "zh": "{gib} GiB"},
    "memory_unknown": {"en": "memory size not reported", "zh": "存储容量未报告"},
    "parameters": {"en": "{count} parameters", "zh": "参数量{count}"},
    "data_in_notes": {"en": "files and their sha256 are in the notes", "zh": "文件及其sha256见注"},
    "data_generated": {"en": "not this data set: rows made by the case itself", "zh": "并非该数据集，由用例自行生成"},
    "data_parallel": {"en": "data parallel", "zh": "数据并行"},
    "tensor_parallel": {"en": "tensor parallel", "zh": "张量并行"},
    "pipeline_parallel": {"en": "pipeline parallel", "zh": "流水线并行"},
    "local_batch": {
        "en": "local batch size, LBS, the samples that enter the model at once: {value}",
        "zh": "local_batchsize，简写为LBS，即实际进入模型的单卡微批大小：{value}",
    },
    "sequence": {
        "en": "sequence length, MPE, the tokens of a sample as they enter the model: {value}",
        "zh": "seqlength，简写为MPE，即实际进入模型的序列长度：{value}",
    },
    "accumulated": {
        "en": "gradient accumulation steps, GAS: {value}",
        "zh": "gradient_accumulate_steps，简写为GAS，即梯度累加步数：{value}",
    },
    "global_batch": {
        "en": "global batch size, LBS x GAS x data parallel ranks: {value}",
        "zh": "global_batchsize，恒等于LBS×GAS×数据并行路数：{value}",
    },
    # notes about runs
    "simulated": {
        "en": "simulated: no device was used, no figure of this run is a measurement",
        "zh": "模拟运行：未使用任何设备，该运行的所有数值都不是测量结果",
    },
    "run": {
        "en": "run {id} of {date}, repeat {repeat} of {repeats}",
        "zh": "运行{id}，日期{date}，第{repeat}次重复（共{repeats}次）",
    },
    "made_by": {
        "en": "case {case} version {version}, adapter {adapter}, flagperf {flagperf}{commit}",
        "zh": "用例{case}版本{version}，适配器{adapter}，flagperf {flagperf}{commit}",
    },
    "commit": {"en": ", commit {commit}", "zh": "，提交{commit}"},
    "profile_published": {
        "en": "profile {profile}, the published configuration",
        "zh": "配置方案{profile}，即发布配置",
    },
    "profile_changed": {
        "en": "profile {profile} with changed values is not the published configuration; its figures compare only with "
        "published ones of the same values",
        "zh": "配置方案{profile}的取值有改动，不是发布配置，其数值只可与取值相同的已发布结果比较",
    },
    "profile": {"en": "profile {profile}", "zh": "配置方案{profile}"},
    "changed": {"en": "changed: {changes}", "zh": "改动：{changes}"},
    "change": {"en": "{change} ({layer})", "zh": "{change}（{layer}）"},
    "profile_other": {
        "en": "profile {profile} is not the published configuration; its figures do not compare with published ones",
        "zh": "配置方案{profile}不是发布配置，其数值不可与已发布结果比较",
    },
    "steps": {
        "en": "warm-up steps dropped {dropped}, steps kept {kept}, padding ratio {padding}, steps timed by {timing}",
        "zh": "丢弃预热步数{dropped}，保留步数{kept}，填充比例{padding}，单步计时方式{timing}",
    },
    "interval": {"en": "{name} between {low} and {high} ({method})", "zh": "{name}在{low}与{high}之间（{method}）"},
    "target_reached": {
        "en": "target {metric} {target}, got {got}: reached",
        "zh": "目标{metric} {target}，实际{got}：达到",
    },
    "target_missed": {
        "en": "target {metric} {target}, got {got}: not reached",
        "zh": "目标{metric} {target}，实际{got}：未达到",
    },
    "target_unknown": {"en": "target: no verdict, {why}", "zh": "目标：无结论，{why}"},
    "evaluated": {"en": "{name} over {rows} evaluated rows", "zh": "{name}基于{rows}条评估样本"},
    "target_none": {"en": "the case declares no target", "zh": "该用例未声明目标"},
    "parts": {"en": "{name} by {by}: {parts}", "zh": "{name}按{by}：{parts}"},
    "memory": {
        "en": "memory by probe {probe}, {samples} samples, at best every {interval} s, largest gap {gap} s, "
        "peak on device {device}",
        "zh": "存储由探针{probe}采样{samples}次，最短每{interval}秒一次，最大间隔{gap}秒，峰值出现在设备{device}",
    },
    "memory_baseline": {
        "en": "before the workers {baseline} GiB",
        "zh": "工作进程启动前{baseline} GiB",
    },
    "memory_allocator": {
        "en": "allocator {allocator} GiB, remainder {remainder} GiB on device {device}",
        "zh": "设备{device}上分配器{allocator} GiB，其余{remainder} GiB",
    },
    "peak_after_training": {"en": " {seconds} s after training began", "zh": "，在训练开始后{seconds}秒"},
    "peak_before_training": {"en": " {seconds} s before training began", "zh": "，在训练开始前{seconds}秒"},
    "peak_after_inference": {"en": " {seconds} s after inference began", "zh": "，在推理开始后{seconds}秒"},
    "peak_before_inference": {"en": " {seconds} s before inference began", "zh": "，在推理开始前{seconds}秒"},
    "memory_spread": {
        "en": "peaks of the {devices} devices by the {source}: lowest {low}, mean {mean}, highest {high} GiB",
        "zh": "{devices}个设备的峰值（{source}）：最低{low}，平均{mean}，最高{high} GiB",
    },
    "by_probe": {"en": "probe", "zh": "探针"},
    "by_allocator": {"en": "allocator", "zh": "分配器"},
    "memory_host": {
        "en": "mem is host memory: the share of one worker's processes in the pool that all workers have in common",
        "zh": "mem为主机内存：单个工作进程（含其子进程）在所有进程共用的主机内存中所占的份额",
    },
    "cpu_others": {
        "en": "other processes used {share} of the {cores} cores while the workers ran",
        "zh": "工作进程运行期间，其他进程占用了{cores}个核心的{share}",
    },
    "mfu": {
        "en": "MFU by formula {formula}, N={parameters} (in matrix products {matmul})",
        "zh": "MFU公式{formula}，N={parameters}（矩阵乘法参数{matmul}）",
    },
    "mfu_peak": {
        "en": "peak {peak} TFLOP/s ({row}; source: {source}; confidence: {confidence})",
        "zh": "峰值{peak} TFLOP/s（{row}；来源：{source}；可信度：{confidence}）",
    },
    "aligned": {
        "en": "loss aligned {verdict} by rule {rule} ({meaning}), reference {reference}",
        "zh": "精度对齐{verdict}，规则{rule}（{meaning}），参考{reference}",
    },
    "rule_mean": {
        "en": "mean relative error below {limit} from step {step} on",
        "zh": "自第{step}步起平均相对误差小于{limit}",
    },
    "rule_each": {
        "en": "relative error of at most {limit} at every step",
        "zh": "每步相对误差不超过{limit}",
    },
    "rule_exact": {"en": "bitwise equal losses at every step", "zh": "每步损失逐位相等"},
    "with_remark": {"en": "{text} ({remark})", "zh": "{text}（{remark}）"},
    "foreign_curve": {"en": "not of a run", "zh": "并非出自某次运行"},
    "aligned_errors": {
        "en": "mean relative error {mean}, largest {largest} at step {step}, {compared} of the {judged} steps from "
        "{first} to {last} compared",
        "zh": "平均相对误差{mean}，最大{largest}（第{step}步），第{first}至{last}步共{judged}步中比较了{compared}步",
    },
    "aligned_gaps": {
        "en": "steps that cannot be compared, which fails the check: {count}, the first is step {step}",
        "zh": "无法比较的步数为{count}，因而不通过，最早为第{step}步",
    },
    "aligned_itself": {"en": "the reference is this run itself", "zh": "参考即该运行本身"},
    "aligned_differ": {
        "en": "values that differ (run/reference): {values}",
        "zh": "不同的取值（运行/参考）：{values}",
    },
    "aligned_unstated": {
        "en": "not compared, because one of the two does not say: {names}",
        "zh": "因一方未说明而未比较：{names}",
    },
    "mfu_useful": {
        "en": "MFU of real tokens alone, without padding and repeats: {share}",
        "zh": "只计真实token（不含填充与重复）的MFU：{share}",
    },
    "mfu_others": {
        "en": "MFU by other formulas, for comparison with published figures of the same formula only: {figures}",
        "zh": "按其他公式的MFU，只可与同一公式的已发布数值比较：{figures}",
    },
    "data_file": {"en": "{path} (sha256 {sha256})", "zh": "{path}（sha256 {sha256}）"},
    "nodes_differ": {
        "en": "the environment shown is node 0's; other nodes differ in {facts}",
        "zh": "所示环境为节点0，其他节点的{facts}与之不同",
    },
}

NUM_NODES_ZH = {
    1: "单机", 2: "两机", 3: "三机", 4: "四机", 5: "五机", 6: "六机", 7: "七机", 8: "八机", 9: "九机", 10: "十机",
}  # fmt: skip
