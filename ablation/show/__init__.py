"""What people see: tables, figures, the lineage and the page."""
