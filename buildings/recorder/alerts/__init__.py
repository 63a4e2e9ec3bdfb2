"""Alerts of monitors: passed deadlines, failures and outages enter; alerts in the outbox, with their texts and targets, leave."""
