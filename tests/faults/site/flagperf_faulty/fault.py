"""FLAGPERF_FAULT=<call>:<behaviour> says which call of this plugin misbehaves, and how."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import time
from typing import Any


class OwnBase(BaseException):
    """As some libraries have it: no Exception, and no request to leave either."""


def answer(call: str, honest: Any) -> Any:
    """What the call gives: `honest`, unless it is the one that misbehaves."""
    faulty, _, behaviour = os.environ.get("FLAGPERF_FAULT", "").partition(":")
    if not faulty or call != faulty:
        return honest
    if behaviour == "raise":
        raise ZeroDivisionError("the plugin's own words")
    if behaviour == "base":
        raise OwnBase("the plugin's own words")
    if behaviour == "interrupt":
        raise KeyboardInterrupt
    if behaviour == "exit":
        sys.exit(0)
    if behaviour == "os_exit":
        os._exit(0)
    if behaviour == "crash":
        os.abort()
    if behaviour == "full":  # from now on no file of this process grows beyond this, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        return honest
    if behaviour == "stuck":  # a library that never gives Python its lock back
        ctypes.PyDLL(None).pause()
    while behaviour == "loop":
        time.sleep(0.01)
    return object()  # behaviour "type"
