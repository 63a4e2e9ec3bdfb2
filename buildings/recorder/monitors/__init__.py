"""Monitors: registered, shown, changed, taken over and deleted; and the state machine that beats and passed deadlines drive."""
