"""`serve`: the report page over localhost, which follows a grid that runs."""
