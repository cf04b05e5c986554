"""What each of several processes has to do for a training step of `debias`: python benchmarks/debias_ranks.py

    for n in 1 2 4; do torchrun --standalone --nproc-per-node=$n benchmarks/debias_ranks.py; done

A random model, made-up items. Printed are the CPU seconds of each rank for an edit batch, after one to warm up: what a
device would have to do, whatever else the machine does. They do not say how long ranks wait for each other.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
STEPS = 5


def main(hidden: int, layers: int, vocab: int, n_edits: int) -> None:
    """Print a line of JSON, from the first rank."""
    import torch

    from tests.trainers.debias.helpers import debias_stage, stereoset_rows, write_assets
    from trainers.assets import files
    from trainers.debias import prepare
    from trainers.debias.config import DebiasConfig
    from trainers.debias.measure import load_suffix
    from trainers.debias.prepared import Prepared
    from trainers.debias.train import Trainer
    from trainers.parallel.group import Group

    torch.set_num_threads(1)
    ranks = Group.join(torch.device("cpu"))
    config = DebiasConfig(
        domains=["gender", "race"],
        edit={"n_edits": n_edits, "batch_size": min(32, n_edits)},
        split={"train": 0.8, "dev": 0.1, "test": 0.1},
        dtype="float32",
        grpo={"weight": 0.3, "reward": "balanced", "beta": 0.1, "gamma": 1.0},
    )
    folder = ranks.same(Path(tempfile.mkdtemp()))
    if ranks.rank == 0:
        rows = stereoset_rows(per_term=n_edits, terms=10)
        assets = write_assets(folder, "llama", rows, hidden=hidden, layers=layers, vocab=vocab)
        prepare.run(debias_stage(folder, "prepare", config, assets))
    ranks.gather(None)
    inputs = {"model": folder / "model", "prepare": folder / "prepare"}
    prepared = Prepared(inputs["prepare"])
    stage = debias_stage(folder, f"rank{ranks.rank}", config, inputs)
    stage.ranks = ranks
    trainer = Trainer(stage, prepared, load_suffix(files(inputs["model"]), prepared))
    items, taken = prepared.indices("train")[:n_edits], []
    for _ in range(STEPS + 1):
        trainer.optimiser.zero_grad()
        began = time.process_time()
        trainer._edit_batch(items, 1.0)
        trainer._sum_gradients(list(trainer.hypernetwork.parameters()))
        taken.append(time.process_time() - began)
    found = ranks.gather(round(median(taken[1:]), 3))
    if ranks.rank == 0:
        print(json.dumps({"ranks": ranks.size, "cpu_s": found, "hidden": hidden, "n_edits": len(items)}), flush=True)
    ranks.leave()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(*(int(word) for word in sys.argv[1:] or (384, 8, 16000, 64)))
