"""The command line, `python -m tracker`."""
