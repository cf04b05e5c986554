"""What SWE-bench's harness itself writes of two models, from logs of tests: reports of instances, and of the runs.

    cd OUT && python write_swebench.py

Instance n is resolved where n (n + 1 for `new`) is not a multiple of three. Of `new`, 3 has an empty patch, 6 was
killed for its memory, 9 has no log, the tests of 12 timed out, and of 15 a module is missing.
"""

from pathlib import Path

from swebench.harness.reporting import make_run_report
from swebench.harness.run_evaluation import run_instance
from swebench.types import TestSpec

LOG = ">>>>> Start Test Output\n{} test_it - reason\nPASSED test_other\n>>>>> End Test Output\n"
INSTANCES = [f"{('astropy__astropy', 'django__django', 'sympy__sympy')[at % 3]}-{1000 + at}" for at in range(24)]


def main() -> None:
    for model, shift in (("base", 0), ("new", 1)):
        broken = {6: "Killed\n", 15: "ModuleNotFoundError: No module named 'x'\n"} if shift else {}
        predictions = {}
        for at, instance in enumerate(INSTANCES):
            empty = bool(shift) and at == 3
            patch = {"instance_id": instance, "model_name_or_path": f"lab/{model}", "model_patch": "" if empty else "x"}
            predictions[instance] = patch
            folder = Path("logs/run_evaluation/run", f"lab__{model}", instance)
            if empty:
                continue
            folder.mkdir(parents=True)
            if shift and at in (9, 12):
                (folder / "run_instance.log").write_text("Timeout error: 1800 seconds exceeded.\n" if at == 12 else "")
                continue
            log = broken.get(at) or LOG.format("PASSED" if (at + shift) % 3 else "FAILED")
            (folder / "test_output.txt").write_text(log)
            spec = TestSpec(
                *(instance, "image", [], "owner/repository", "1", ["test_it"], ["test_other"]),
                log_parser="parse_log_pytest",
                eval_type="pass_and_fail",
            )
            run_instance(spec, patch, None, "run", rewrite_reports=True)
        make_run_report(predictions, [{"instance_id": each} for each in INSTANCES], "run")


if __name__ == "__main__":
    main()
