"""The operator's pages: the state of the whole campus comes in; pages on the listener `[server] admin` go out, behind a password."""
