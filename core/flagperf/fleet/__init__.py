"""The nodes of a run as one: how the agents on them are started, asked and stopped."""
