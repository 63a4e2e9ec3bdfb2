"""What operators see of a running campus: its log and its metrics."""
