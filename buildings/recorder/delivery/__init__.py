"""Delivery: alerts from the outbox to webhooks, Discord and e-mail, at least once, under one constant id."""
