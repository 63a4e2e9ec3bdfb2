"""The front door: all that a building may use of campus."""
