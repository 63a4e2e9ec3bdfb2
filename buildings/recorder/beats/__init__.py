"""Beats: what agents, jobs and the hooks of agents' hosts send enters; stored beats, new deadlines and capsules leave."""
