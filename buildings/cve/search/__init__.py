"""Search: one language of criteria, for searching the list and for watches, and what it finds."""
