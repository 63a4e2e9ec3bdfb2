"""The public status page: whether the service and each server works now, and how that and the delivery of alerts were in 90 days."""
