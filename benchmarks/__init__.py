"""Measurements, not tests: times are reported as ratios to a reference measured in the same run."""
