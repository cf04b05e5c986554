#!/usr/bin/env python3
"""`srun --nodes=N ... COMMAND` on this machine: the command once for each node, as Slurm starts it, in what we ask."""

import os
import signal
import subprocess
import sys
import time


def main(words: list[str]) -> int:
    first = next(index for index, word in enumerate(words) if not word.startswith("--"))
    options, command = dict(word.removeprefix("--").split("=") for word in words[:first]), words[first:]
    assert options["kill-on-bad-exit"] == "1"
    assert options["ntasks"] == options["nodes"]
    assert "CUDA_VISIBLE_DEVICES" not in os.environ  # that of the first node
    tasks = []
    for node in range(int(options["nodes"])):
        own = {"SLURM_NODEID": str(node), "SLURMD_NODENAME": f"node{node}", "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1"}
        own["CUDA_VISIBLE_DEVICES"] = "0"
        moved = list(command)
        elsewhere = os.environ.get("FAKE_SRUN_ELSEWHERE", "")  # a folder in whose place the second node has another
        if elsewhere and node:
            moved = [elsewhere + "-2" if word == elsewhere else word for word in moved]
        tasks.append(subprocess.Popen(moved, env={**os.environ, **own}))

    def end(number: int, _: object) -> None:
        for task in tasks:
            task.send_signal(number)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    while any(task.poll() is None for task in tasks):
        if any(task.poll() for task in tasks):
            for task in tasks:
                task.terminate()
            time.sleep(3)  # KillWait
            for task in tasks:
                task.kill()
        time.sleep(0.05)
    return max(abs(task.returncode) for task in tasks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
