"""The report page: its content (`content`), and the HTML file (`render`)."""
