"""Pairs and judges evaluations by other tools, for `ablation compare` (docs/how-to/compare.md)."""
