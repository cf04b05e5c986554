"""Compares numbers: variants, plan, store, verdicts, tables; never imports torch, transformers, snakemake, trainers."""
