"""What runs on every node: `python -m flagperf.agent describe|check|run|probe`. The only door to a node's hardware."""
