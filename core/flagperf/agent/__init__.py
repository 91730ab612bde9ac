"""What runs on a node: `python -m flagperf.agent serve`, and a run's probe. Only agents touch its hardware."""
