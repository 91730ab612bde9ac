"""python -m flagperf"""

import os
import sys

# `python -m` lets files of the current folder pass for libraries; the `flagperf` command does not, and so do we.
# A file called flagperf.py there is beyond us: Python takes it before it comes here.
if not getattr(sys.flags, "safe_path", False):
    here = os.path.realpath(os.curdir)
    sys.path[:1] = [entry for entry in sys.path[:1] if os.path.realpath(entry) != here]

from flagperf.cli import main

main()
