"""The page of a visitor's key at /keys: signs in and out, and shows what the key opens, used and let in, as campus.keys knows it."""
