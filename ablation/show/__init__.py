"""What people see: tables, figures, the variant tree and the page."""
