"""srun that ends with the stage's process, however that ends: python -m trainers.parallel.srun PARENT COMMAND..."""

import os
import sys
from signal import SIGTERM

from ablation.contract.process import end_with_parent

if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]), SIGTERM)  # at which srun ends its step; what the kernel was told survives exec
    os.execvp(sys.argv[2], sys.argv[2:])
