"""Imported studies: runs of other programs with their seeds, variants, tree and files."""
