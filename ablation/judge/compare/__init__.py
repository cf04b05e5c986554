"""Evaluations by other tools, paired and judged: `ablation compare`. Documented in docs/compare.md."""
