"""The referee of a campaign of trials: go on at full speed, claim only what is true."""
