"""Runs of other programs as a study: their seeds, variants, lineage and shards."""
