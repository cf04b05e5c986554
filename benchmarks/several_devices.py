"""Try one or more devices: the smoke grid, the tests of tests/trainers/parallel, and a model of 0.5B parameters.

    python benchmarks/several_devices.py                   # 1, 2, 4, ... NVIDIA devices; `make test-accelerators`
    python benchmarks/several_devices.py --model FOLDER    # its weights instead of random ones of the same shape
    python benchmarks/several_devices.py --device cpu --tiny --counts 1 2 --skip-tests    # how it is itself tested

For each number of devices one process per device takes the same supervised steps. Losses, norms and the first step's
gradients must be those of one device; peak memory stands next to the estimate of `ablation memory`. Writes report.md
(to paste into an issue) and report.json into --out; exits with 1 if a stage failed or something was not equal.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

LEARNING_RATE = 1e-5
LOSS, GRADIENT = 1e-4, 1e-3  # largest differences from one device, relative, in float32
# Qwen2.5-0.5B, as its config.json says it.
HALF_BILLION = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}
TINY = {**HALF_BILLION, "vocab_size": 211, "hidden_size": 28, "intermediate_size": 48, "num_hidden_layers": 2}
TESTS = ["test_updates.py", "test_stages.py"]
# Peak bfloat16 products a second without sparsity, by a part of the device's name, from NVIDIA's data sheets.
PEAK = {
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
    "V100": 125e12,
}


def parse() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--model", help="a folder or a name of the hub; default: random weights of Qwen2.5-0.5B's shape"
    )
    parser.add_argument("--tiny", action="store_true", help="two narrow layers instead")
    parser.add_argument("--counts", type=int, nargs="+", help="numbers of devices, the first is compared with")
    parser.add_argument("--rows", type=int, default=16, help="of a step")
    parser.add_argument("--tokens", type=int, default=512, help="of a row's prompt and response")
    parser.add_argument("--micro-batch", type=int, default=4, help="rows that a device computes at once")
    parser.add_argument("--compute", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--skip-tests", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("build/several-devices"))
    parser.add_argument("--as-rank", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Run tests and model; return 1 where something is not equal, 2 without devices."""
    arguments = parse()
    if arguments.as_rank:
        return take_steps(arguments, arguments.as_rank)
    import torch

    found = torch.cuda.device_count()
    if arguments.device == "cuda" and not found:
        print(
            f"error: --device cuda: torch {torch.__version__} sees no NVIDIA device here; "
            "run this on a machine with one or more, or pass --device cpu --tiny to try the script",
            file=sys.stderr,
        )
        return 2
    counts = arguments.counts or [2**power for power in range(16) if 2**power <= (found or 2)]
    arguments.out.mkdir(parents=True, exist_ok=True)
    grid = None if arguments.skip_tests else run_grid(arguments, max(found, 1))
    tests = None if arguments.skip_tests or max(counts) < 2 else run_tests(arguments)
    results = [run(arguments, count) for count in counts]
    report = {
        "environment": environment(arguments),
        "grid": grid,
        "tests": tests,
        "model": describe(arguments),
        "devices": results,
    }
    compare(arguments, results)
    (arguments.out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    (arguments.out / "report.md").write_text(words := in_words(report))
    print(words)
    wrong = [each for each in results if not each["equal"]]
    return int(bool(wrong or (grid and grid["status"]) or (tests and tests["status"])))


def run_grid(arguments: argparse.Namespace, devices: int) -> dict[str, Any]:
    """Run the smoke grid of all studies; stages find the devices by themselves."""
    results, began = arguments.out / "results", time.perf_counter()
    command = [sys.executable, "-m", "snakemake", "--cores", "all", "--resources", f"gpu={devices}", "--config"]
    command += ["scale=smoke", f"results={results}", f"reports={arguments.out / 'reports'}"]
    with (arguments.out / "grid.txt").open("w") as log:
        status = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False).returncode
    stages = [json.loads(path.read_text()) for path in sorted(results.glob("stages/**/status.json"))]
    ended = [f"{each['stage']}: {each['state']} ({each['reason']})" for each in stages if each["state"] != "ok"]
    on_device = sum(each["device"] != "cpu" for each in stages)
    summary = f"{len(stages)} stages in {time.perf_counter() - began:.0f} s, {on_device} on a device; "
    return {"status": status, "summary": summary + ("; ".join(ended) or "all ok")}


def run_tests(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the tests of updates and of whole stages on the devices."""
    files = [str(ROOT / "tests" / "trainers" / "parallel" / name) for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    environ = {**os.environ, "ABLATION_TEST_DEVICE": arguments.device}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    (arguments.out / "tests.txt").write_text(done.stdout + done.stderr)
    return {"status": done.returncode, "summary": (done.stdout.strip().splitlines() or ["no output"])[-1]}


def run(arguments: argparse.Namespace, count: int) -> dict[str, Any]:
    """Take the steps on `count` devices, a process for each."""
    folder = arguments.out / str(count)
    folder.mkdir(exist_ok=True)
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"] if count > 1 else []
    command = [sys.executable, *launcher, str(Path(__file__).resolve()), *sys.argv[1:], "--as-rank", str(folder)]
    environ = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    with (folder / "log.txt").open("w") as log:
        done = subprocess.run(command, env=environ, stdout=log, stderr=log, check=False)
    if done.returncode:
        sys.exit(f"error: {count} devices: exit status {done.returncode}; see {folder / 'log.txt'}")
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


def take_steps(arguments: argparse.Namespace, out: Path) -> int:
    """Be one rank: take the steps, and leave what they gave."""
    import torch
    from safetensors.torch import save_file

    from ablation.runner.ranks import ALONE, Ranks
    from trainers.policy.config import Precision
    from trainers.policy.learner import Learner
    from trainers.policy.models import Placement
    from trainers.policy.supervised import fit
    from trainers.running.micro_batch import MicroBatch

    name = "cpu" if arguments.device == "cpu" else f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    ranks: Ranks = ALONE
    if "RANK" in os.environ:
        from trainers.parallel.group import Group

        ranks = Group.join(torch.device(name))
    model = build(arguments)
    batch = rows_of(arguments, model.config.vocab_size).to(name)
    placement = Placement.of([name], Precision(compute=arguments.compute), ranks)
    model = placement.shard(model.to(name))
    memory = MicroBatch(arguments.micro_batch, ranks=ranks)
    learner = Learner.adamw(model, lr=LEARNING_RATE, memory=memory)
    gradients: dict[str, torch.Tensor] = {}

    def keep(*_: object) -> None:
        for key, parameter in model.named_parameters():
            whole = ranks.whole(parameter.grad)
            if ranks.rank == 0 and key not in gradients:
                gradients[key] = whole.detach().cpu().contiguous()

    hook = learner.optimizer.register_step_pre_hook(keep)
    losses, norms, seconds = [], [], []
    for step in range(arguments.steps):
        began = time.perf_counter()
        parts, norm = fit(learner, batch, placement)
        losses.append(sum(each.item() for each in parts))
        norms.append(float(norm))
        seconds.append(time.perf_counter() - began)  # .item() waited for the device
        if step == 0:
            hook.remove()  # what gathering the gradients held is not a part of the peak
            if arguments.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
    peak = torch.cuda.max_memory_allocated() if arguments.device == "cuda" else None
    peaks = ranks.gather(peak)
    halved = ranks.gather(memory.size)
    if ranks.rank == 0:
        save_file(gradients, out / "gradients.safetensors")
        steady = sorted(seconds[2:] or seconds)[len(seconds[2:] or seconds) // 2]
        found = {
            "devices": ranks.size,
            "losses": losses,
            "norms": norms,
            "step_s": steady,
            "tokens_per_s": arguments.rows * (arguments.tokens // 2 * 2) / steady,
            "mfu": utilisation(arguments, model, steady, ranks.size),
            "peak_bytes": peaks,
            "micro_batch": halved,
            "estimated_bytes": estimate(arguments, model.config, ranks.size),
        }
        (out / "found.json").write_text(json.dumps(found))
    if ranks is not ALONE:
        ranks.leave()
    return 0


def utilisation(arguments: argparse.Namespace, model: Any, seconds: float, devices: int) -> float | None:
    """Return model FLOPs utilisation, 6 FLOPs per parameter and token (PaLM, arXiv 2204.02311, without attention's).

    None on a device whose peak is not listed here.
    """
    import torch

    name = torch.cuda.get_device_name() if arguments.device == "cuda" else ""
    peak = next((rate for part, rate in PEAK.items() if part in name), None)
    tokens = arguments.rows * (arguments.tokens // 2 * 2)
    parameters = sum(each.numel() for each in model.parameters())
    return None if peak is None else 6 * parameters * tokens / seconds / (devices * peak)


def rows_of(arguments: argparse.Namespace, vocabulary: int) -> Any:
    """Return rows of random tokens: half prompt, half response, nothing padded."""
    import torch

    from trainers.policy.batch import Sequences

    half = arguments.tokens // 2
    ids = torch.randint(vocabulary, (arguments.rows, 2 * half), generator=torch.Generator().manual_seed(1))
    ones = torch.ones(arguments.rows, half)
    return Sequences(ids[:, :half], ones.long(), ids[:, half:], ones)


def build(arguments: argparse.Namespace) -> Any:
    """Return the model, the same in every process, on the CPU in float32."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    if arguments.model:
        return AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
    return Qwen2ForCausalLM(Qwen2Config(**(TINY if arguments.tiny else HALF_BILLION)))


def estimate(arguments: argparse.Namespace, config: Any, devices: int) -> int:
    """Return the bytes of the fullest device, as `ablation memory` counts a supervised stage."""
    from ablation.contract.footprint import Footprint
    from trainers.footprint import Model, of_config, share
    from trainers.policy.config import Precision

    shape, precision = of_config(config.to_dict()), Precision(compute=arguments.compute)
    length, half = arguments.tokens // 2 * 2, arguments.tokens // 2
    model = Model("model", shape, precision, devices)
    rows = share(arguments.rows, arguments.micro_batch, devices)
    learn = model.update("training", rows, length, predicted=half)
    return Footprint(model.held, (learn,)).peak


def compare(arguments: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    """Note in each result how far it is from the first, which one device should be."""
    from safetensors.torch import load_file

    first = results[0]
    reference = load_file(arguments.out / str(first["devices"]) / "gradients.safetensors")
    size = sum(float(each.double().square().sum()) for each in reference.values()) ** 0.5
    for each in results:
        own = load_file(arguments.out / str(each["devices"]) / "gradients.safetensors")
        gap = sum(float((own[name].double() - reference[name].double()).square().sum()) for name in reference) ** 0.5
        each["gradient_gap"] = gap / size
        pairs = zip(each["losses"] + each["norms"], first["losses"] + first["norms"], strict=True)
        each["loss_gap"] = max(abs(a - b) / max(abs(b), 1e-12) for a, b in pairs)
        # In bfloat16 the order of sums is worth a thousandth and more.
        loose = 1 if arguments.compute == "float32" else 100
        each["equal"] = each["gradient_gap"] <= loose * GRADIENT and each["loss_gap"] <= loose * LOSS
        each["equal"] = each["equal"] and set(own) == set(reference) and size > 0


def environment(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return machine and versions."""
    import torch
    import transformers

    on_cuda = arguments.device == "cuda"
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda if on_cuda else None,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if on_cuda else None,
        "devices": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())] or ["cpu"],
        "backend": "nccl" if on_cuda else "gloo",
    }


def describe(arguments: argparse.Namespace) -> str:
    """Return the model and the steps in words."""
    weights = arguments.model or f"random weights of {'two narrow layers' if arguments.tiny else 'Qwen2.5-0.5B'}"
    return f"{weights}; {arguments.rows} rows of {arguments.tokens} tokens, {arguments.compute}, AdamW"


def in_words(report: dict[str, Any]) -> str:
    """Return the report in Markdown."""
    found, tests = report["environment"], report["tests"]
    grid, head = (
        report["grid"],
        "| devices | equal | gradients | losses, norms | peak GiB | estimated | tokens/s | times one | MFU |",
    )
    lines = ["# Devices", "", ", ".join(found["devices"]), ""]
    lines += [" · ".join(f"{name} {value}" for name, value in found.items() if name != "devices" and value), ""]
    lines += [f"Smoke grid: {grid['summary'] if grid else 'not run'}", ""]
    lines += [f"Tests: {tests['summary'] if tests else 'not run'}", "", report["model"], ""]
    lines += [head, "|" + " --- |" * 9]
    first = report["devices"][0]
    for each in report["devices"]:
        peaks = [peak for peak in each["peak_bytes"] if peak is not None]
        peak = f"{max(peaks) / 2**30:.2f}" if peaks else "not measured"
        ratio = each["tokens_per_s"] / first["tokens_per_s"]
        row = [str(each["devices"]), "yes" if each["equal"] else "NO", f"{each['gradient_gap']:.1e}"]
        row += [f"{each['loss_gap']:.1e}", peak, f"{each['estimated_bytes'] / 2**30:.2f}"]
        mfu = "unknown" if each["mfu"] is None else f"{each['mfu']:.1%}"
        lines.append("| " + " | ".join([*row, f"{each['tokens_per_s']:.0f}", f"{ratio:.2f}", mfu]) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
