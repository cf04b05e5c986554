"""torchrun for the ranks of one stage on this machine: python -m trainers.parallel.launcher PARENT COUNT ARGUMENTS."""

import os
import sys
from collections.abc import Mapping, Sequence
from signal import SIGKILL
from typing import Any

from ablation.contract.process import end_with_parent

# Any free port; by number, as a machine's own name need not resolve.
HERE = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "local_addr": "127.0.0.1"}


def launch(count: int, arguments: Sequence[str], *, nodes: int = 1, meeting: Mapping[str, Any] = HERE) -> int:
    """Run `count` workers with the arguments of the stage; end them all when one fails. Return the exit status.

    meeting: how the launchers of so many machines find each other, in the words of torch's LaunchConfig.
    """
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from ablation.runner.job import parse
    from trainers.parallel.launch import write_outcome

    config = LaunchConfig(
        min_nodes=nodes,
        max_nodes=nodes,
        nproc_per_node=count,
        logs_specs=DefaultLogsSpecs(log_dir=os.environ["ABLATION_SCRATCH"]),
        max_restarts=0,
        shutdown_timeout=5,  # seconds from SIGTERM to SIGKILL
        **{"run_id": str(os.getpid()), **meeting},
    )
    try:
        elastic_launch(config, sys.executable)("-m", "trainers.parallel.worker", *arguments)
    except ChildFailedError as error:
        killed = [rank for rank, failure in error.failures.items() if failure.exitcode == -SIGKILL]
        rank = killed[0] if killed else error.get_first_failure()[0]
        reason = f"rank {rank} ended with exit status {error.failures[rank].exitcode}"
        write_outcome(parse(arguments).out, "failed", reason, machine=True, over=bool(killed))
        return 1
    return 0


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    sys.exit(launch(int(sys.argv[2]), sys.argv[3:]))
