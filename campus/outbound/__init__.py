"""The client for callers' URLs: nothing that a caller names leads it to a private place."""
