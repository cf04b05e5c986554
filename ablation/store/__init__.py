"""Results: stage folders collected into one database, the progress of the grid, and trained models."""
