"""torchrun for the ranks of one stage on this machine: python -m trainers.parallel.launcher PARENT COUNT ARGUMENTS."""

import os
import sys
from signal import SIGKILL

from contract.lifetime import end_with_parent


def main(parent: int, count: int, arguments: list[str]) -> int:
    """Run `count` workers with the arguments of `trainers.run`; end them all when one fails. Return the exit status."""
    end_with_parent(parent)
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from trainers.job import parse
    from trainers.parallel.launch import OUTCOME, write_outcome

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=str(os.getpid()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",  # any free port
        local_addr="127.0.0.1",  # a machine's own name need not resolve
        logs_specs=DefaultLogsSpecs(log_dir=os.environ["ABLATION_SCRATCH"]),
        max_restarts=0,
        shutdown_timeout=5,  # seconds from SIGTERM to SIGKILL
    )
    try:
        elastic_launch(config, sys.executable)("-m", "trainers.parallel.worker", *arguments)
    except ChildFailedError as error:
        out, (rank, _) = parse(arguments).out, error.get_first_failure()
        # A rank that can, says why itself. One that was killed could not, and others say only that it is gone.
        for each, failure in error.failures.items():
            if failure.exitcode == -SIGKILL:
                rank = each
                (out / OUTCOME).unlink(missing_ok=True)
        status = error.failures[rank].exitcode
        write_outcome(out, "failed", f"rank {rank} ended with exit status {status}", machine=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
