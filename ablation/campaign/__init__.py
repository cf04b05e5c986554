"""Referee a loop that tries many changes: every trial is decided quickly, but only verified gains are claimed."""
