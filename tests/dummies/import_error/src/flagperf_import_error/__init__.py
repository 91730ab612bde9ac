"""Needs a library that this machine does not have."""

import library_of_no_vendor  # noqa: F401
