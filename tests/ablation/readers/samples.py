"""Files in the form of lm-evaluation-harness 0.4.13, for faults that the real package does not write.

`fixtures/lm_eval.tar.gz` holds real ones; `test_real_lm_eval.py` holds this form to theirs.
"""

import hashlib
import json

import numpy as np

ITEMS = 60
DATE = "2026-01-02T03-04-05.000006"


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def row(number, value, *, question=None, prompt="Q: {}", target="yes", name="none", metric="acc", **more):
    question = question if question is not None else f"question {number}"
    asked = prompt.format(question)
    return {
        "doc_id": number,
        "doc": {"question": question},
        "target": target,
        "arguments": {"gen_args_0": {"arg_0": asked, "arg_1": {"until": ["\n"]}}},
        "resps": [["yes" if value else "no"]],
        "filtered_resps": ["yes" if value else "no"],
        "filter": name,
        "metrics": [metric],
        "doc_hash": digest(json.dumps({"question": question}, indent=2)),
        "prompt_hash": digest(asked),
        "target_hash": digest(target),
        metric: value,
    } | more


def write_samples(folder, rows, *, task="toy", results=True, stderr=0.02, larger=True, version=1.0):
    """samples_<task>_<date>.jsonl, and the results beside it; return the path of the samples."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"samples_{task}_{DATE}.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    if results:
        metrics = rows[0]["metrics"]
        values = {(m, r["filter"]): [q[m] for q in rows if q["filter"] == r["filter"]] for m in metrics for r in rows}
        numbers = {f"{m},{f}": sum(v) / len(v) for (m, f), v in values.items() if not isinstance(v[0], list)}
        numbers |= {f"{m}_stderr,{f}": stderr for m, f in values}
        whole = "".join(r["doc_hash"] + r["prompt_hash"] + r["target_hash"] for r in rows)
        content = {
            "results": {task: numbers},
            "higher_is_better": {task: dict.fromkeys(metrics, larger)},
            "versions": {task: version},
            "n-shot": {task: 0},
            "config": {"model": "hf", "model_args": {"pretrained": "/".join(folder.parts[-2:])}},
            "task_hashes": {task: digest(whole)},
        }
        (folder / f"results_{DATE}.json").write_text(json.dumps(content))
    return path


def hits(seed, gain=0.0, items=ITEMS):
    """0/1 values of items of different ease; the same items for all groups."""
    ease = np.random.default_rng(0).uniform(0.2, 0.8, items)
    return (np.random.default_rng([1, seed]).uniform(size=items) < ease + gain).astype(float)


def write_group(folder, gain=0.0, seeds=3, **options):
    for seed in range(seeds):
        write_samples(folder / f"seed{seed}", [row(i, v, **options) for i, v in enumerate(hits(seed, gain))])
    return str(folder)


def write_groups(folder, rows, *, seeds=1, gain=0.2, **options):
    """Both groups of a comparison as words of the command; rows: from the values of a run."""
    for group, of in (("base", 0.0), ("new", gain)):
        for seed in range(seeds):
            write_samples(folder / group / f"seed{seed}", rows(hits(seed, of)), **options)
    return folder / "base", "--with", folder / "new"
