"""Figures: `style` is how all of them look, `declared` those that a study asks for; `render` makes all the files."""
