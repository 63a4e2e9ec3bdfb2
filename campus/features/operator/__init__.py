"""The operator's pages on the listener `[server] admin`, behind CAMPUS_OPERATOR_PASSWORD: what the command line shows and does."""
