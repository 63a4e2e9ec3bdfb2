"""Connect: clients that speak OAuth only come in at /connect, once a key's holder agrees; their calls go on with that key."""
