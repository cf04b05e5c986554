"""Figures as files, by matplotlib: a module per kind, `style` is how all of them look, `render` makes the files."""
