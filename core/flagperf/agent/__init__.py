"""What runs on every node: `python -m flagperf.agent describe|check|run|probe`. Only agents touch a node's hardware."""
