"""Pairs and judges evaluations that other tools wrote, for `ablation compare` (docs/how-to/compare.md)."""
