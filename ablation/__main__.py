"""`python -m ablation`."""

import sys

from ablation.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
