"""`ablation serve`: show the report page on localhost, and update it while a grid runs."""
