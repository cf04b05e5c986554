"""A stand-in for kubectl: a pod is a process in the Job's folder with an empty home and no environment of its own.

kubectl.py create|get|delete ...      `pods/NAME` next to this file holds a Job; its first pod is killed at random
"""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

PODS = Path(__file__).parent / "pods"
KILLED = 1  # of the first pods


def create() -> None:
    """Start the Job of standard input, and print its name."""
    job = json.load(sys.stdin)
    number = len(list(PODS.iterdir()))
    name = f"{job['metadata']['generateName']}{number}"
    (PODS / name).mkdir()
    (PODS / name / "job.json").write_text(json.dumps(job))
    words = [sys.executable, __file__, "pod", name, str(number)]
    with (PODS / name / "log").open("w") as log:
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    print(name, end="")


def pod(name: str, number: int) -> None:
    """Run a Job to its end, or kill it."""
    home = PODS / name / "home"
    home.mkdir()
    [container] = json.loads((PODS / name / "job.json").read_text())["spec"]["template"]["spec"]["containers"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(home)}
    running = subprocess.Popen(
        container["command"], cwd=container["workingDir"], env=environment, start_new_session=True
    )
    try:
        code = running.wait(random.Random(number).uniform(0.3, 3) if number < KILLED else None)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        code = running.wait()
    (PODS / name / "end").write_text("Failed" if code else "Complete")


if __name__ == "__main__":
    PODS.mkdir(exist_ok=True)
    match sys.argv[1:]:
        case ["create", *_]:
            create()
        case ["pod", of, place]:
            pod(of, int(place))
        case ["get", "job", of, *_]:
            end = PODS / of / "end"
            print(":" + (end.read_text() if end.exists() else ""), end="")
