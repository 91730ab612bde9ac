"""Plans with each fault that is named on the command line and prints what became of it, one JSON line each. It is a
process of its own: where a guard is missing, os._exit ends it and the lines after it are not there."""

from __future__ import annotations

import json
import os
import sys

from flagperf.errors import FlagPerfError
from flagperf.plan import plan_for_model
from flagperf.plugins import Plugins
from flagperf.plugins.distributions import entry_points
from flagperf.plugins.load import load_entry_points
from flagperf.spec import RunSpec

FOUND = [each for each in entry_points("flagperf") if each.distribution.name in ("flagperf", "flagperf-faulty")]


def plan(fault: str) -> dict[str, object]:
    os.environ["FLAGPERF_FAULT"] = fault
    for name in [name for name in sys.modules if name.partition(".")[0] == "flagperf_faulty"]:
        del sys.modules[name]
    plugins = Plugins(load_entry_points(FOUND))
    code, words = 0, ""
    try:
        plan_for_model(RunSpec("sleeper"), plugins, "F1")
    except FlagPerfError as error:
        code, words = error.exit_code, str(error)
    problem = next(status.problem for status in plugins.statuses() if status.distribution == "flagperf-faulty")
    others = [status.name for status in plugins.statuses() if status.problem and status.name != "faulty"]
    return {"fault": fault, "code": code, "words": words, "problem": problem, "others": others}


for argument in sys.argv[1:]:
    print(json.dumps(plan(argument)), flush=True)
