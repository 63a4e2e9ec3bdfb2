"""The paywall: a call enters by either frame; its result leaves if a key opens the tool or a payment buys it, a refusal otherwise."""
