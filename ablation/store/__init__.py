"""The results: stage folders collected in one database, the grid's progress, and trained models."""
