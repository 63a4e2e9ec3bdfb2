"""Watches: each new list enters; news of the CVEs that fit a watch leave, by message or by poll."""
