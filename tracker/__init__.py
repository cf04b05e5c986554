"""Compares numbers: variants, plan, store, tables, verdicts; never imports torch, transformers, snakemake, trainers."""
