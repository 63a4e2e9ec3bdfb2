"""The HTTP server: connections come in; requests within all limits go to the table of routes, and what that answers goes out."""
