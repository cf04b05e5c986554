"""Output for people: tables, figures, the variant tree and the report page."""
