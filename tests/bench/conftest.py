"""bench is a program of the repository and not installed: it is imported from the root."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
