"""Runs of other programs as a study: their seeds, variants, tree and shards."""
