"""What runs on a node: `python -m flagperf.agent describe|check|run|probe|sweep`. Only agents touch its hardware."""
