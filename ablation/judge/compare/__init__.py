"""Evaluations that others wrote, paired and judged: `ablation compare`. Documented in docs/compare.md."""
