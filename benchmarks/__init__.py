"""Figures of campus as ratios to what a good engineer would write by hand, measured side by side in one run."""
