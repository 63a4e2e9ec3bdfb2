"""The paywall: a call enters over HTTP or MCP; its result leaves if a key opens the tool or a payment buys it, a refusal otherwise."""
