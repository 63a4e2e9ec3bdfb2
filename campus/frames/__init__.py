"""The two frames around a call: only they know their transport, and both ask the same paywall."""
