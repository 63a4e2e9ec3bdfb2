"""Traces: requests, jobs and alerts come in; spans go out to a collector of OpenTelemetry, where the environment names one."""
