"""Evaluations by other tools, paired and judged: `ablation compare`. Documented in docs/how-to/compare.md."""
