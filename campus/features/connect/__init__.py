"""Connect: clients that speak OAuth only come in at /connect, once a key's holder agrees; their calls go on with that key.

`let_in` is the front door: a key's page lists the clients that it let in, and ends them.
"""
