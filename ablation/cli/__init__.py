"""The command line, `python -m ablation`."""
