"""HTTP routes, OpenAPI and problems for any FastMCP server, made from its tools."""
