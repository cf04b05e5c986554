"""Evaluations that others wrote, read, paired and judged: `ablation compare`. Documented in docs/compare.md."""
