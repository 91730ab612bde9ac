"""Our own sentences in Chinese: what metrics, endings and environment facts say in English, as templates.

Records are kept in one language, so that the same run reads the same everywhere; a page translates what matches a
template here, part by part. Words of others (a tool, a driver, an exception) stay as they were said.
"""

from __future__ import annotations

import re
from functools import cache


def in_chinese(text: str) -> str:
    """`text` as far as it is ours."""
    for pattern, chinese in _patterns():
        found = pattern.fullmatch(text)
        if found:
            return chinese.format(**{name: in_chinese(value) for name, value in found.groupdict().items()})
    return text


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(_regex(english), re.DOTALL), chinese) for english, chinese in PHRASES.items())


def _regex(template: str) -> str:
    parts = re.split(r"({#?\w+})", template)
    return "".join(_group(part) if part.startswith("{") else re.escape(part) for part in parts)


def _group(field: str) -> str:
    """`{words}` stands for anything, `{#rank}` for numbers."""
    name = field.strip("{#}")
    return rf"(?P<{name}>[\d, ]+)" if field.startswith("{#") else f"(?P<{name}>.+?)"


PHRASES = {
    # --- how a run ended (store.run.Status and its reason) ---
    "failed: {reason}": "failed：{reason}",
    "out_of_memory: {reason}": "out_of_memory：{reason}",
    "timed_out: {reason}": "timed_out：{reason}",
    "unsupported: {reason}": "unsupported：{reason}",
    "interrupted: {reason}": "interrupted：{reason}",
    "stopped by the user": "被用户中止",
    "not finished within {seconds} s": "未在{seconds}秒内完成",
    "the agent on node {#node} ended without a word; see {log}": "节点{node}上的代理进程无任何说明便已结束，见{log}",
    "the launcher ended with {code}: {words}; see {log}": "启动器以返回码{code}结束：{words}，见{log}",
    "workers not started: {words}": "工作进程未能启动：{words}",
    "rank {#rank} left before its case was done; see {log}": "rank {rank}在用例完成之前退出，见{log}",
    "rank {#rank}: killed by {words}; see {log}": "rank {rank}：被{words}终止，见{log}",
    "rank {#rank}: {words}; see {log}": "rank {rank}：{words}，见{log}",
    # --- ranks and their record ---
    "{who} recorded twice or not of this job": "{who}被重复记录或不属于本作业",
    "no record of {who}: {#count} of {#all} started": "没有{who}的记录：{all}个中有{count}个启动",
    "{who} did not succeed: {why}": "{who}未成功：{why}",
    "rank {#rank} ended as {status} ({reason})": "rank {rank}以{status}结束（{reason}）",
    "rank {#rank} ended as {status}": "rank {rank}以{status}结束",
    "the record of rank {#rank} stops after its start, before the first step was finished":
        "rank {rank}的记录在启动后中断，第一步尚未完成",
    "the record of rank {#rank} stops after step {#step}": "rank {rank}的记录在第{step}步之后中断",
    # --- times ---
    "the parent recorded no launch of the workers of {nodes}": "父进程没有记录{nodes}工作进程的启动",
    "the parent recorded no end of the workers of {nodes}": "父进程没有记录{nodes}工作进程的结束",
    "the workers of {nodes} ended with a code other than 0": "{nodes}的工作进程以非0返回码结束",
    "the last workers ended {ns} ns before the first were launched": "最后的工作进程在首个启动之前{ns} ns结束",
    "an inference case has no beginning of training": "推理用例没有训练的开始",
    "{#count} of {#all} ranks of node {#node} began training": "节点{node}的{all}个rank中有{count}个开始训练",
    "ranks of node {#node} have clocks of {#count} machines": "节点{node}的各rank使用了{count}台机器的时钟",
    "node {#node} began training {ns} ns before its launch": "节点{node}在启动之前{ns} ns开始训练",
    # --- training and its window ---
    "an inference case has no training steps": "推理用例没有训练步",
    "a training case has no inference": "训练用例没有推理",
    "the case computes by its engine alone, not by a plain framework beside it":
        "该用例只由其推理工具计算，不另由框架直接推理",
    "rank {#rank} recorded no training span": "rank {rank}没有记录训练区间",
    "rank {#rank} has {#count} beginnings of training": "rank {rank}有{count}个训练的开始",
    "rank {#rank} has {#count} ends of training": "rank {rank}有{count}个训练的结束",
    "rank {#rank} has {#count} ends of warm-up": "rank {rank}有{count}个预热的结束",
    "rank {#rank} has its training, warm-up and end out of order: {moments} ns":
        "rank {rank}的训练、预热与结束次序错误：{moments} ns",
    "rank {#rank} has an evaluation or logging that ends at {at} ns before it began":
        "rank {rank}有一次评估或日志在开始之前的{at} ns结束",
    "rank {#rank} has step {#step} from {began} to {ended} ns, out of order":
        "rank {rank}的第{step}步（{began}至{ended} ns）次序错误",
    "rank {#rank} has step {#step} after step {#before}": "rank {rank}的第{step}步出现在第{before}步之后",
    "rank {#rank} has a negative time or count in step {#step}": "rank {rank}的第{step}步有负的时间或计数",
    "rank {#rank} did {#count} steps but did not end its warm-up after {#warmup}":
        "rank {rank}执行了{count}步，但没有在{warmup}步后结束预热",
    "rank {#rank} ended its warm-up after {#count} steps; {key} is {#warmup}":
        "rank {rank}在{count}步后结束预热，而{key}为{warmup}",
    "rank {#rank} has a step on the wrong side of the end of warm-up at {at} ns":
        "rank {rank}有一步位于预热结束（{at} ns）的错误一侧",
    "rank {#rank} has steps {steps}, rank {#other} has {others}":
        "rank {rank}有第{steps}步，rank {other}有第{others}步",
    "all {#count} steps were warm-up: no step is left to measure": "全部{count}步都是预热，没有可测量的步",
    "rank {#rank}: evaluation or logging from {began} ns overlaps the one until {ended} ns":
        "rank {rank}：始于{began} ns的评估或日志与止于{ended} ns的重叠",
    "rank {#rank}: {part} ns of computing do not fit: {parts}": "rank {rank}：{part} ns的计算放不下：{parts}",
    "rank {#rank}: {part} ns of waiting for data do not fit: {parts}":
        "rank {rank}：{part} ns的数据等待放不下：{parts}",
    "rank {#rank}: {part} ns of computing is no duration: {parts}": "rank {rank}：{part} ns的计算不是有效时长：{parts}",
    "the window of {whole} ns leaves {train} ns without evaluation and logging":
        "{whole} ns的窗口除去评估与日志后剩{train} ns",
    # --- throughput ---
    "95 %, batch means": "95 %，批均值法",
    "the kept steps counted no samples": "保留的各步没有计入样本",
    "the kept steps counted no tokens": "保留的各步没有计入token",
    "the case counts no tokens": "该用例不计token",
    "{samples} samples were counted in {seconds} s of training": "在{seconds}秒的训练中计入{samples}个样本",
    # --- FLOPs and peaks ---
    "the worker did not describe its model": "工作进程没有描述其模型",
    "the ranks describe different models": "各rank描述的模型不一致",
    "the case declares no formula for its FLOPs": "该用例没有声明FLOPs公式",
    "unknown formula {formula}; known: {known}": "未知公式{formula}，已知的有：{known}",
    "the worker did not say how many parameters its adapters have": "工作进程没有说明其适配器的参数量",
    "above the peak for this precision: {figures}": "超过该精度的峰值：{figures}",
    "no peak is known for {wanted}": "没有已知的峰值：{wanted}",
    "the peak for {wanted} is of low confidence": "峰值的可信度低：{wanted}",
    "vendor {vendor}, model {model}, precision row {row}": "厂商{vendor}，型号{model}，精度行{row}",
    # --- quality ---
    "no step was finished": "没有完成任何一步",
    "training diverged: the loss of step {#step} is not a finite number": "训练发散：第{step}步的损失不是有限数",
    "step {#step} has no finite loss on all ranks": "第{step}步在所有rank上都没有有限的损失",
    "step {#step} has no finite loss on {who}": "第{step}步在{who}上没有有限的损失",
    "{metric}: the case did not report {name}": "{metric}：用例没有报告{name}",
    "the case did not report {name}": "用例没有报告{name}",
    "{name} is {value}, not a number from {low} to {high}": "{name}为{value}，不是{low}到{high}之间的数",
    "the configuration has no number at {key}": "配置中{key}不是数值",
    "there is no metric of that name in case {case}": "用例{case}中没有该名称的指标",
    # --- alignment ---
    "no reference curve was given": "没有给出参考曲线",
    "the reference is of another experiment: {why}": "参考属于另一实验：{why}",
    "RUN is of case {case}, REFERENCE of {other}": "运行的用例为{case}，参考的为{other}",
    "RUN has steps {#a} to {#b}, REFERENCE {#c} to {#d}, and steps pair one to one":
        "运行有第{a}至{b}步，参考有第{c}至{d}步，各步须一一对应",
    "rule {rule} judges steps from {#first} on, the curves end with step {#last}":
        "规则{rule}从第{first}步起判定，而曲线止于第{last}步",
    "step {#step} has {#samples} samples in RUN, {#others} in REFERENCE":
        "第{step}步在运行中有{samples}个样本，在参考中有{others}个",
    "{name} is {value} in RUN, {other} in REFERENCE": "{name}在运行中为{value}，在参考中为{other}",
    "the version of the case": "用例版本",
    "model": "模型",
    "data": "数据",
    "samples per step": "每步样本数",
    "no loss was recorded at any step": "所有步都没有记录损失",
    # --- memory and probes ---
    "vendor {vendor} has no allocator with figures of its own": "厂商{vendor}的分配器没有自己的数值",
    "{who} recorded no allocator peak": "{who}没有记录分配器峰值",
    "{card} reported no total: {why}": "{card}没有报告总量：{why}",
    "{card} reported no total": "{card}没有报告总量",
    "{card} reported a total of {total} bytes": "{card}报告的总量为{total}字节",
    "{card} was not read before the workers started: {why}": "{card}在工作进程启动之前没有读数：{why}",
    "{card} was not read before the workers started": "{card}在工作进程启动之前没有读数",
    "{card}, of rank {#rank}, is not among the sampled ones": "rank {rank}的{card}不在被采样的设备之中",
    "the slots of node {#node} together used {used} of {total} bytes at {at} ns":
        "节点{node}的各槽位在{at} ns合计使用了{total}字节中的{used}字节",
    "{card} used {used} bytes at its peak": "{card}的峰值为{used}字节",
    "{card} used {used} of {total} bytes at {at} ns": "{card}在{at} ns使用了{total}字节中的{used}字节",
    "{card} says {peak} bytes at its peak, the allocator of rank {#rank} {reserved}":
        "{card}的峰值为{peak}字节，而rank {rank}的分配器为{reserved}字节",
    "the worker of local rank {#rank} has ended": "本机rank {rank}的工作进程已结束",
    "the worker of local rank {#rank} has not started": "本机rank {rank}的工作进程尚未启动",
    "no memory was sampled of {cards}: {why}": "没有采到{cards}的存储：{why}",
    "no memory was sampled of {cards}": "没有采到{cards}的存储",
    "no sample of {card} for {part} of {whole} s: {why}": "{card}在{whole}秒中有{part}秒没有采样：{why}",
    "no sample of {card} for {part} of {whole} s": "{card}在{whole}秒中有{part}秒没有采样",
    "node {#node}: the probe {words}": "节点{node}：探针{words}",
    "the probe of {nodes} did not record its end": "{nodes}的探针没有记录其结束",
    "the probe of {nodes} ran {seconds} s": "{nodes}的探针运行了{seconds}秒",
    "the probe {words}": "探针{words}",
    "ended with code {code}: {words}": "以返回码{code}结束：{words}",
    "ended with code {code}": "以返回码{code}结束",
    "was killed by signal {signal}: {words}": "被信号{signal}终止：{words}",
    "was killed by signal {signal}": "被信号{signal}终止",
    "was not ready within {seconds} s: {words}": "未在{seconds}秒内就绪：{words}",
    "was not ready within {seconds} s": "未在{seconds}秒内就绪",
    "did not end within {seconds} s and was killed: {words}": "未在{seconds}秒内结束，已被终止：{words}",
    "did not end within {seconds} s and was killed": "未在{seconds}秒内结束，已被终止",
    "no memory probe of {vendor} is available (it has none)": "{vendor}没有任何存储探针",
    "no memory probe of {vendor} is available ({reasons})": "{vendor}没有可用的存储探针（{reasons}）",
    "the use of the cores was not sampled twice on {nodes}": "{nodes}上对核心占用的采样不足两次",
    # --- the environment ---
    "no adapter reports a driver": "没有适配器报告驱动",
    "{path} is not tracked by git ({why}) and was not installed from a commit":
        "{path}不在git中（{why}），也不是由某次提交安装的",
    "the work tree of {path} has no readable commit ({why})": "{path}的工作区没有可读的提交（{why}）",
    "no PRETTY_NAME in {paths}": "{paths}中没有PRETTY_NAME",
    "neither {path} nor {another} can be read": "{path}与{another}都无法读取",
    "neither {path} nor lscpu gives a model name": "{path}与lscpu都没有给出型号",
    "{path} holds the placeholder {word}": "{path}只有占位内容{word}",
    "/proc/cpuinfo has no model name, and {problem}": "/proc/cpuinfo中没有型号，且{problem}",
    "no sign of a container, but process 1 cannot be read": "没有容器的迹象，但无法读取1号进程",
    "no sign of a container, but process 1 is {name} and no init system":
        "没有容器的迹象，但1号进程是{name}而不是init系统",
    "docker --version names no version of Docker: {words}": "docker --version没有给出Docker的版本：{words}",
    "the torch of {python} has no distribution metadata": "{python}中的torch没有发行信息",
    "torch is not installed in {python}": "{python}中没有安装torch",
    "no physical interface in {paths}": "{paths}中没有物理网卡",
    "the speed of {name} is not readable": "{name}的速率无法读取",
    "the speed of {name} is given as {speed}": "{name}的速率为{speed}",
    "{adapter} port {#port} is active without a readable rate": "{adapter}端口{port}处于活动状态，但速率无法读取",
    "{adapter} port {#port} is {state}": "{adapter}端口{port}的状态为{state}",
    "{tool}: not found": "{tool}：未找到",
    "{tool}: ended with {code}": "{tool}：以返回码{code}结束",
    "{path} cannot be read": "{path}无法读取",
    # --- names ---
    "device {device} of node {#node}": "节点{node}的设备{device}",
    "devices {devices} of node {#node}": "节点{node}的设备{devices}",
    "{#first} to {#last}": "{first}至{last}",
    "node {#node}": "节点{node}",
    "nodes {#nodes} and {#count} more": "节点{nodes}以及另外{count}个",
    "nodes {#nodes}": "节点{nodes}",
    "rank {#rank}": "rank {rank}",
    "ranks {#ranks} and {#count} more": "rank {ranks}以及另外{count}个",
    "ranks {#ranks}": "rank {ranks}",
}  # fmt: skip
"""English -> Chinese; the first match counts, so that a longer sentence stands before the one that begins it."""
