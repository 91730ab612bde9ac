"""What runs on a node: `python -m flagperf.agent describe|check|run|probe`. Only agents touch its hardware."""
