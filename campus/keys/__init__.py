"""Keys: what can be bought, the token that a caller sends, how long it is good, and the ring that holds them all."""
