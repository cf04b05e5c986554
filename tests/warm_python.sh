#!/bin/sh
# The interpreter of a Snakemake that tests/warm.py runs.
exec "$TESTS_PYTHON" -I -S "${0%.sh}.py" "$TESTS_PYTHON" "$@"
