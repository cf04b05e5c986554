"""Figures: `style` is how all of them look, `standard` those of every study, `declared` those that a study asks for."""
