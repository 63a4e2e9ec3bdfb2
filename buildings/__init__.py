"""What is sold: each package here is one building, opened by its entry point."""
