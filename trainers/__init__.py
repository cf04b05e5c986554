"""Code that trains and evaluates models, a stage at a time; it knows nothing of Snakemake or of the tracker."""
