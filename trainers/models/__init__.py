"""Causal language models of any architecture, and tiny random ones."""
