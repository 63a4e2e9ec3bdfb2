"""What campus sends to others: HTTP to the URLs of callers and of the operator, and e-mail."""
