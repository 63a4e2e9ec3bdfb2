"""Keys: what can be bought, the token that a caller sends, how long it is valid, and the keyring."""
