"""Referee of a campaign of trials: the loop runs at full speed, and only verified gains are claimed."""
