"""Training steps of study `debias`: the fast path against the plain reference implementation of the tests.

    python benchmarks/debias_step.py --model results/stages/assets/KEY --data results/stages/assets/KEY
    python benchmarks/debias_step.py --random            # a random model of SmolLM2's size class, made-up items

The hypernetwork learns: after each step Adam moves it, and at the end every parameter must have moved. Both take each
step on the same items and from the same weights, the first from the true start, and must agree; the largest deviations
are printed. Adam's own time, the same for both, is not counted. The reference pads to 64, runs the whole model, keeps
all logits and loops over sentences, as BiasEdit's public code does, but it is not that code: it takes autograd through
the ridge solve in float64. What the authors' own code costs stands in docs/studies/debias.md. The two take turns in one
process, for `--steps` steps; printed are medians, with the smallest and largest in brackets, and CPU seconds of all
threads beside the clock, for machines that do other work too. Preparing (once for all variants, seeds and epochs) is
timed apart.
"""

import argparse
import copy
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def settings(n_edits: int, dtype: str = "float32", rank: int = 128):  # noqa: ANN201
    from trainers.debias.config import DebiasConfig

    split = {"train": 0.25, "dev": 0.25, "test": 0.5, "max_items": {"train": (n_edits + 1) // 2, "dev": 1, "test": 1}}
    return DebiasConfig(
        domains=["gender", "race"],
        edit={"n_edits": n_edits, "batch_size": n_edits},
        editor={"rank": rank, "batch_size": 512},
        split=split,
        lr=1e-5,
        meta_lr=5e-6,  # as the demo
        dtype=dtype,
        grpo={"weight": 0.3, "reward": "balanced", "beta": 0.1, "gamma": 1.0},
    )


class Fast:
    """The fast path: one edit batch of a trainer, which then learns from it."""

    def __init__(self, folder: Path, inputs: dict[str, Path], n_edits: int, dtype: str, rank: int) -> None:
        from tests.trainers.debias.helpers import debias_stage
        from trainers.assets import files
        from trainers.debias.measure import load_suffix
        from trainers.debias.prepared import Prepared
        from trainers.debias.train import Trainer

        self.prepared = Prepared(inputs["prepare"])
        stage = debias_stage(folder, "probe", settings(n_edits, dtype, rank), inputs)
        self.trainer = Trainer(stage, self.prepared, load_suffix(files(inputs["model"]), self.prepared))
        self.indices = self.prepared.indices("train")[:n_edits]
        self.network = self.trainer.hypernetwork

    def step(self) -> tuple[dict, dict]:
        """Figures, and gradients by parameter."""
        self.trainer.optimiser.zero_grad()
        figures = self.trainer._edit_batch(self.indices, 1.0)
        gradients = self.trainer.hypernetwork.named_parameters()
        return figures, {name: parameter.grad.clone() for name, parameter in gradients}

    def learn(self) -> None:
        """Let Adam move the network by the last step's gradient."""
        self.trainer.optimiser.step()


class Plain:
    """The tests' reference on the same items."""

    def __init__(self, fast: Fast, inputs: dict[str, Path], n_edits: int, dtype: str, rank: int) -> None:
        from tests.trainers.debias.reference import Editor
        from trainers.assets import files
        from trainers.models import load_model

        self.network = copy.deepcopy(fast.network)
        names = [module.name for module in fast.prepared.modules]
        model = load_model(files(inputs["model"]), dtype=dtype)
        self.editor = Editor(model, names, self.network, settings(n_edits, dtype, rank))
        kinds = ("anti", "stereo", "unrelated")
        self.part = {kind: [fast.prepared.items[i].tokens[kind] for i in fast.indices] for kind in kinds}

    def step(self) -> tuple[dict, dict]:
        result = self.editor.run([self.part])
        return {"loss": result.loss, **result.figures}, result.gradients

    def follow(self, weights: dict) -> None:
        """Take over weights and normaliser."""
        self.network.load_state_dict(weights)
        self.network.zero_grad()


def timed(path: "Fast | Plain") -> tuple[float, float, tuple[dict, dict]]:
    """Seconds by the clock, CPU seconds of all threads, and what a step gives."""
    start, cpu = time.perf_counter(), time.process_time()
    result = path.step()
    return time.perf_counter() - start, time.process_time() - cpu, result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder of a finished asset stage with a model")
    parser.add_argument("--data", type=Path, help="folder of a finished asset stage with StereoSet items")
    parser.add_argument("--random", action="store_true", help="a random Llama and made-up items instead")
    parser.add_argument("--n-edits", type=int, default=32)
    parser.add_argument(
        "--rank", type=int, default=1920, help="of the hypernetwork; 1920 is the paper's, 128 the demo's"
    )
    parser.add_argument(
        "--dtype", default="float32", choices=["float32", "float64"], help="float64: exactness, not speed"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="of Adam; A and scale move from the second on")
    arguments = parser.parse_args()
    if arguments.steps < 2:
        parser.error("--steps: at least 2, as the first one leaves A and scale where they are")
    if not arguments.random and not (arguments.model and arguments.data):
        parser.error("give --model and --data, or --random")
    with tempfile.TemporaryDirectory() as scratch:
        return compare(Path(scratch), arguments)


def compare(folder: Path, arguments: argparse.Namespace) -> int:
    import torch

    from tests.trainers.debias.helpers import debias_stage
    from trainers.debias import prepare

    torch.set_num_threads(arguments.threads)
    inputs = {"model": arguments.model, "data": arguments.data}
    if arguments.random:
        inputs = random_inputs(folder)
    n_edits, dtype, rank = arguments.n_edits, arguments.dtype, arguments.rank
    stage = debias_stage(folder, "prepare", settings(n_edits, dtype), inputs)
    cpu = time.process_time()
    prepare.run(stage)
    items = len(json.loads((folder / "prepare" / "stereoset.json").read_text())["items"])
    print(f"prepare, once: {time.process_time() - cpu:.2f} CPU s for {items} items")
    inputs["prepare"] = folder / "prepare"
    fast = Fast(folder, inputs, n_edits, dtype, rank)
    plain = Plain(fast, inputs, n_edits, dtype, rank)
    start = copy.deepcopy(fast.network.state_dict())
    timed(fast)  # the first use of each operator costs more
    fast.network.load_state_dict(start)
    pairs, disagreements = [], 0
    for _ in range(arguments.steps):
        plain.follow(fast.network.state_dict())
        pairs.append((timed(fast), timed(plain)))
        disagreements += agree(pairs[-1][0][2], pairs[-1][1][2], dtype)
        fast.learn()
    still = [name for name, parameter in fast.network.named_parameters() if torch.equal(parameter, start[name])]
    print("parameters that did not move: " + (", ".join(still) or "none"))
    lengths = [len(tokens) for tokens in fast.prepared.tokens(fast.indices)]
    print(
        f"rank {rank}, n_edits {n_edits}, {len(lengths)} sentences of {sum(lengths) / len(lengths):.1f} tokens, "
        f"{arguments.threads} threads, {arguments.steps} steps of Adam, one after the other"
    )
    for number, unit in ((1, "CPU seconds"), (0, "seconds by the clock")):
        columns = [[pair[side][number] for pair in pairs] for side in (0, 1)]
        ratios = [slow / quick for quick, slow in zip(*columns, strict=True)]
        spread = [f"{median(c):.2f} ({min(c):.2f} to {max(c):.2f})" for c in (*columns, ratios)]
        print(f"{unit}: fast {spread[0]}, plain {spread[1]}, ratio {spread[2]}")
    return 1 if disagreements or still else 0


def agree(fast: tuple[dict, dict], plain: tuple[dict, dict], dtype: str) -> int:
    """Print the deviations of figures and gradients; 0 where they are those of rounding."""
    for name, value in plain[0].items():
        print(f"{name:12}  fast {fast[0][name]:+.8f}   plain {value:+.8f}")
    entry, norm, where = 0.0, 0.0, ""
    for name, expected in plain[1].items():
        difference = fast[1][name] - expected
        if not expected.any():  # A and scale, in the first step
            assert not difference.any(), name
            continue
        norm = max(norm, float(difference.norm() / expected.norm()))
        entry, where = max((entry, where), (float(difference.abs().max() / expected.abs().max()), name))
    loss = abs(fast[0]["loss"] / plain[0]["loss"] - 1)
    print(f"loss: relative deviation {loss:.1e}")
    print(
        f"hypernetwork gradients, worst tensor: {norm:.1e} in norm; worst entry {entry:.1e} of the largest, in {where}"
    )
    # 30 layers in float32 leave noise that float64 does not have: there the two agree as the tests ask of small models.
    limit, exact = (1e-4, 1e-5) if dtype == "float64" else (1e-3, 1e-4)
    return 0 if norm < limit and loss < exact and fast[0]["ss"] == plain[0]["ss"] else 1


def random_inputs(folder: Path) -> dict[str, Path]:
    from tests.trainers.debias.helpers import stereoset_rows, write_assets

    rows = stereoset_rows(per_term=20, terms=8)
    return write_assets(folder, "llama", rows, hidden=576, layers=30, vocab=49152)


if __name__ == "__main__":
    sys.exit(main())
