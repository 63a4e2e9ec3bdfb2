"""Limits: how many calls a minute each caller, and each building, may make; a step that drops further ones with 429."""
