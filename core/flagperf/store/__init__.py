"""Bundles: one folder per run, written atomically, sealed by a MANIFEST, found again by id.

Nothing is imported here: agents and workers need `store.paths`, not the metrics that reading a bundle takes.
"""
