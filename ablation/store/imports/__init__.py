"""Runs of other programs as a study: which are seeds of one variant, what each changes, and their shards."""
