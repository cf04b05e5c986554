"""Evaluations written by lm-evaluation-harness itself: two prompts, three draws of the examples, two tasks.

    python write_lm_eval.py OUT --data FOLDER --model hf --model-args pretrained=DIR,dtype=float32 --items 64

Run it with a Python that has `lm_eval` (0.4.13). FOLDER holds `openbook.jsonl` and `letters.jsonl`, rows of question,
options and answer; `--model dummy` (lm-eval's own, of random answers) needs no torch.
"""

import argparse
import json
import os
from pathlib import Path

SEEDS = (0, 1, 2)
PROMPTS = {
    "base": {"openbook": "{{question}}", "letters": "Question: {{question}}\n{{listed}}\nAnswer:"},
    "new": {
        "openbook": "Question: {{question}}\nAnswer:",
        "letters": "{{question}}\n{{listed}}\nThe letter of the right answer is",
    },
}
TASKS = {
    "openbook": """
output_type: multiple_choice
doc_to_choice: choices
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
""",
    "letters": """
output_type: generate_until
generation_kwargs: {until: ["\\n"], max_gen_toks: 4, do_sample: false}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
filter_list:
  - name: strict-match
    filter: [{function: regex, regex_pattern: "^ ([A-E])\\\\b"}, {function: take_first}]
  - name: flexible-extract
    filter: [{function: regex, regex_pattern: "([A-E])"}, {function: take_first}]
""",
}


def documents(path: Path, task: str, items: int) -> list[dict]:
    """The first rows in the form of the tasks."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        listed = [option.strip() for option in row["options"].strip().split("\n")]
        if row["answer"].strip() not in listed:  # a few rows of the data lack their answer
            continue
        right = listed.index(row["answer"].strip())
        choices = [option[3:] for option in listed[: 2 if right < 2 else right + 1][-2:]]  # the right one and another
        answer = min(right, 1) if task == "openbook" else "ABCDE"[right]
        rows.append(
            {"question": row["question"].strip(), "choices": choices, "listed": "\n".join(listed), "answer": answer}
        )
    return rows[:items]


def write_task(folder: Path, data: Path, task: str, prompt: str, items: int) -> None:
    """The data and the YAML of one task; the last rows are the examples."""
    folder.mkdir(parents=True, exist_ok=True)
    items = items if task == "openbook" else items // 4  # generation is slow
    rows = documents(data / f"{task}.jsonl", task, items + 20)
    for split, part in (("test", rows[:items]), ("examples", rows[items:])):
        text = "".join(json.dumps(row) + "\n" for row in part)
        (folder / f"{task}_{split}.jsonl").write_text(text, encoding="utf-8")
    files = {split: str((folder / f"{task}_{split}.jsonl").resolve()) for split in ("test", "examples")}
    (folder / f"{task}.yaml").write_text(
        f"task: {task}\ndataset_path: json\ndataset_kwargs: {{data_files: {json.dumps(files)}}}\n"
        f"test_split: test\nfewshot_split: examples\ndoc_to_text: {json.dumps(prompt)}\ndoc_to_target: answer\n"
        f"metadata: {{version: 1.0}}\n{TASKS[task]}",
        encoding="utf-8",
    )


def take_out_the_machine(runs: Path, places: dict[str, str]) -> None:
    """Replace paths in the results, and the description of the machine: nothing else of what lm-eval wrote."""
    for path in runs.rglob("results_*.json"):
        text = path.read_text(encoding="utf-8")
        for place, name in places.items():
            text = text.replace(place, name)
        content = json.loads(text) | {"pretty_env_info": "taken out", "git_hash": None, "upper_git_hash": None}
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")


def main() -> None:
    """Write OUT/<prompt>/seed<n>/<model>/{results,samples}_*, as `lm_eval run --log_samples` does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="dummy")
    parser.add_argument("--model-args", default="")
    parser.add_argument("--items", type=int, default=64)
    parser.add_argument("--scratch", type=Path, required=True)
    arguments = parser.parse_args()
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HOME": str(arguments.scratch.resolve() / "hf"),
    }

    from lm_eval import simple_evaluate
    from lm_eval.api.registry import get_model
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    options = {"batch_size": 16, "device": "cpu"}
    model = get_model(arguments.model).create_from_arg_string(arguments.model_args, options)
    for number, (group, prompts) in enumerate(PROMPTS.items()):
        folder = arguments.scratch / group
        for task, prompt in prompts.items():
            write_task(folder, arguments.data, task, prompt, arguments.items)
        for seed in SEEDS:
            tracker = EvaluationTracker(output_path=str(arguments.out / group / f"seed{seed}"))
            results = simple_evaluate(
                model=model,
                model_args=arguments.model_args,
                tasks=list(prompts),
                num_fewshot=1,
                fewshot_random_seed=seed,
                random_seed=10 * number + seed,  # what the dummy answers
                task_manager=TaskManager(include_path=str(folder), include_defaults=False),
                evaluation_tracker=tracker,
            )
            samples = results.pop("samples")
            tracker.save_results_aggregated(results=results, samples=samples)
            for task in results["configs"]:
                tracker.save_results_samples(task_name=task, samples=samples[task])
    take_out_the_machine(arguments.out, {str(arguments.scratch.resolve()): "tasks", str(arguments.scratch): "tasks"})


if __name__ == "__main__":
    main()
