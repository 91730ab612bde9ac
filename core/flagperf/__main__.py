"""python -m flagperf"""

from flagperf.cli import main

main()
