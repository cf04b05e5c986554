"""Compares numbers: variants, plan, store, tables, verdicts. Never imports torch, transformers, snakemake or trainers."""
