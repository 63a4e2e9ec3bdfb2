"""What people and feed readers see: the served list enters; pages and feeds leave."""
