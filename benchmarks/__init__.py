"""Measurements, not tests: every time is a ratio to a reference that is measured in the same run."""
