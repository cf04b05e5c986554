"""Produces numbers: one stage of one study at a time. Knows nothing of Snakemake or of the tracker."""
