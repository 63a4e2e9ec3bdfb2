"""A tool, alike for HTTP and MCP: its declaration and sent arguments enter; a checked call and its result as JSON leave."""
