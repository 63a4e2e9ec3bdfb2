"""MCP: plain messages enter and leave as results, without the server behind; all others are handed on to it."""
