"""Policy optimisation on verifiable tasks: one engine for the studies `innovations` and `gspo`, reused by `gad`."""
