"""Bundles: one folder per run, with files written atomically, sealed by a MANIFEST and looked up by id.

This module imports nothing: agents and workers need only `store.paths`, and reading bundles imports the metrics.
"""
