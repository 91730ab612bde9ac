"""Runs for other programs: tables and MLflow. docs/export.md lists the columns, which only grow.

- recorded: the runs to export, read in one place
- columns: what a column holds
- runs: one line for each run
- curves: one line for each step
- tables: lines as CSV, JSON lines and Parquet
- tracking: runs on an MLflow server
"""
