"""The HTTP server and everything between the network and a route: connections, limits, headers, pages."""
