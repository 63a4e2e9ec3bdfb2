"""The paywall: who may call a tool, by key or by payment; asked by the HTTP gate and by the MCP middleware alike."""
