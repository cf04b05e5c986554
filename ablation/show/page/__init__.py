"""The report page: what it says (`content`), and the HTML file (`render`)."""
