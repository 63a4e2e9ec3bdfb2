"""`campus dev`: what an author edits is served at once; a version takes over from the one before, and no call is refused meanwhile."""
