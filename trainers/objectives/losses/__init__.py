"""Losses of policies and values, their aggregation, KL and entropy."""
