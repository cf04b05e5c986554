"""Check a machine with NVIDIA devices: correctness, speed, and the cost of scale `paper` (`make first-gpu`).

    python benchmarks/first_gpu.py                        # at most 15 minutes; some parts: --only sampling step
    python benchmarks/first_gpu.py --device cpu --tiny    # a quick test of this script
    python benchmarks/first_gpu.py --device cpu --only step --scale demo --model FOLDER    # with a policy of yours

Each part is a process with a time limit, and appends its figures to OUT/PART.jsonl as it measures them. After each part
the script updates OUT/report.json and OUT/report.md, which you can paste into an issue. The report has a line for what
cannot run here, for example because vLLM or TRL is not installed. Exit status 1: a part failed, or results differ;
2: there is no device.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

MINUTES = 15
Figures = dict[str, Any]


def main() -> int:
    """Run the parts one after the other, each in its own process group; return the exit status."""
    from benchmarks import device_parts

    options = parse()
    if options.part:
        write(options, device_parts.PARTS[options.part].run(options))
        return 0
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            f"error: --device cuda: torch {torch.__version__} finds no NVIDIA device; "
            "run the script on a machine with such a device, or pass --device cpu --tiny to try it",
            file=sys.stderr,
        )
        return 2
    names = options.only or list(device_parts.PARTS)
    empty(options.out, names)
    began, report = time.monotonic(), [{"part": "machine", "figures": [device_parts.machine(options)]}]
    for name in names:
        patience = 1 if options.device == "cuda" else 4  # a CPU takes longer
        left = patience * 60 * MINUTES - (time.monotonic() - began)
        report.append(run(options, name, min(patience * device_parts.PARTS[name].seconds, left)))
        print(in_words(report[-1:]), flush=True)
        (options.out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
        (options.out / "report.md").write_text("# Report of benchmarks/first_gpu.py\n\n" + in_words(report))
    print(f"wrote {options.out / 'report.md'} and report.json after {time.monotonic() - began:.0f} s")
    return int(any(part.get("error") or any("wrong" in each for each in part["figures"]) for part in report))


def empty(out: Path, names: list[str]) -> None:
    """Create the folder `out` and delete earlier results of these parts, which may be from another machine."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (*names, "policy", "trl"):
        shutil.rmtree(out / name, ignore_errors=True)


def parse() -> argparse.Namespace:
    """Return the parsed command line."""
    from benchmarks.device_parts import PARTS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="use narrow models, short responses and a part of the grid")
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, metavar="PART", help=f"parts to run: {', '.join(PARTS)} (default: all)"
    )
    parser.add_argument("--model", help="folder of a policy (default: random weights, Qwen2.5-0.5B's shape)")
    parser.add_argument("--scale", help="scale of the step of GRPO (default: paper; smoke with --tiny)")
    parser.add_argument(
        "--counts",
        type=int,
        nargs="+",
        help="numbers of devices for the part devices; results are compared with the first number",
    )
    parser.add_argument("--out", type=Path, default=Path("build/first-gpu"))
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.scale = options.scale or ("smoke" if options.tiny else "paper")
    options.out = options.out.resolve()  # the parts run in the project's folder
    if options.model and Path(options.model).exists():
        options.model = str(Path(options.model).resolve())
    return options


def run(options: argparse.Namespace, name: str, seconds: float) -> Figures:
    """Run a part for at most `seconds`; return its name, duration, error (None if there was none) and figures."""
    figures = options.out / f"{name}.jsonl"
    figures.unlink(missing_ok=True)
    began, problem = time.monotonic(), None
    environment = {"OMP_NUM_THREADS": "4"} | dict(os.environ)
    with (options.out / f"{name}.txt").open("w") as log:
        places = ["--out", str(options.out), *(["--model", options.model] if options.model else [])]
        command = [sys.executable, __file__, *sys.argv[1:], "--part", name, *places]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            if process.wait(max(1.0, seconds)):
                problem = f"exit status {process.returncode}; see {log.name}"
        except subprocess.TimeoutExpired:
            problem = f"stopped after {seconds:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    written = figures.read_text().splitlines() if figures.exists() else []
    took = round(time.monotonic() - began, 1)
    return {"part": name, "seconds": took, "error": problem, "figures": [json.loads(line) for line in written]}


def write(options: argparse.Namespace, figures: Iterator[Figures]) -> None:
    """Append each figure of a part to the part's file as soon as it is measured."""
    with (options.out / f"{options.part}.jsonl").open("a") as file:
        for each in figures:
            file.write(json.dumps(each) + "\n")
            file.flush()


def in_words(report: list[Figures]) -> str:
    """Return the parts of a report as Markdown: a heading for each part, and a line for each set of figures."""
    lines = []
    for part in report:
        lines += [f"## {part['part']}" + (f", {part['seconds']} s" if "seconds" in part else ""), ""]
        for each in part["figures"]:
            values = [
                f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in each.items()
            ]
            lines.append("- " + " · ".join(value.removeprefix("what ") for value in values))
        lines += [f"- **{part['error']}**"] if part.get("error") else []
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
