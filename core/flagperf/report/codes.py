"""What the codes of empty cells and of marked values mean, in both languages."""

from __future__ import annotations

from typing import Literal

Meanings = dict[str, dict[Literal["en", "zh"], str]]

CODES: Meanings = {
    # reasons of empty cells
    "not_measured": {"en": "there is no reading", "zh": "未测量"},
    "not_applicable": {"en": "has no meaning here", "zh": "不适用"},
    "withheld": {"en": "measured and not given out", "zh": "已测量但不公布"},
    "run_failed": {"en": "the run did not succeed", "zh": "运行未成功"},
    "invalid_telemetry": {"en": "the telemetry cannot be trusted", "zh": "遥测数据不可信"},
    "unknown_peak": {
        "en": "no trusted peak for this card and precision; another card's is never used",
        "zh": "该卡在此精度下没有可信的峰值，也不借用其他卡的峰值",
    },
    "unsupported": {"en": "not supported here", "zh": "不支持"},
    # marks of values
    "oversubscribed": {
        "en": "more workers than cores, which slow each other down",
        "zh": "工作进程多于核心，相互拖慢",
    },
    "busy_host": {
        "en": "other processes used more than 10 % of the cores, which slows CPU workers down",
        "zh": "其他进程占用了10 %以上的核心，会拖慢CPU上的工作进程",
    },
    "medium_peak": {"en": "divided by a peak of medium confidence", "zh": "所用峰值的可信度为中"},
    "low_peak": {"en": "divided by a peak of low confidence, by request", "zh": "按用户要求使用了可信度低的峰值"},
    "unverified_mapping": {
        "en": "it is not verified that the worker used the card that was sampled",
        "zh": "未能确认工作进程所用的卡即被采样的卡",
    },
    "over_capacity": {
        "en": "more than the card that was described has: another card may have been read",
        "zh": "超过所描述的卡的容量，读到的可能是另一张卡",
    },
    "telemetry_gap": {
        "en": "there was no sample for a while: the peak may have been higher",
        "zh": "有一段时间没有采样，实际峰值可能更高",
    },
    "implausible_utilisation": {
        "en": "the same probe read a utilisation outside 0 to 100 %",
        "zh": "同一探针读到的利用率不在0到100 %之间",
    },
    "torn_record": {"en": "the last line of a record file is cut off", "zh": "记录文件的最后一行不完整"},
}

DETAILS: Meanings = {
    "no_ending": {
        "en": "no ending was recorded: it is still running, or its parent process was killed",
        "zh": "没有记录到结束：仍在运行，或其父进程被终止",
    },
    "no_driver": {"en": "the adapter reports no driver version", "zh": "适配器没有报告驱动版本"},
    "no_packages": {"en": "no package was recorded", "zh": "没有记录任何软件包"},
}
