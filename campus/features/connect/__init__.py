"""The way in for clients that speak OAuth only: at /connect, whoever holds a key lets a client call with it, without an account."""
