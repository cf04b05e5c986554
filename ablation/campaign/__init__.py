"""The referee of a campaign of trials: the loop goes on at full speed, but only true gains are claimed."""
