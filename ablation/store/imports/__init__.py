"""Imported studies: find the seeds and variants of runs of other programs, and store these runs."""
