"""What came out: the stage folders collected in one database, how far the grid is, and where the models lie."""
