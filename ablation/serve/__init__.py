"""`serve`: shows the report page over localhost and updates the page while a grid runs."""
