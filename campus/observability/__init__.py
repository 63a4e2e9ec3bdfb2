"""What operators see of a running campus: its log, its metrics and its checks."""
