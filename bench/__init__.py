"""What flagperf itself costs, as ratios of things that are interleaved in one run. `python -m bench [NAME ...]`."""
