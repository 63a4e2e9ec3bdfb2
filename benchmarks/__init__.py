"""Benchmarks: campus compared with what a good engineer would write by hand, measured in the same run."""
