"""Servers that were not written for campus: a command, an address, an API or a server of the SDK comes in, a LateServer goes out."""
