"""The command `import ledger`: which of the attempts that were kept are improvements, and what to rerun."""

import argparse
import math

from ablation.config.names import known_direction
from ablation.contract.display import aligned, counted
from ablation.contract.errors import ConfigError
from ablation.judge.ledger import Attempt, Settled, pooled_sd, settle
from ablation.readers.ledger import read_ledger


def run_ledger(arguments: argparse.Namespace) -> int:
    """Print the answer; nothing is written."""
    if len(arguments.paths) > 1:
        raise ConfigError("import", "PATH", str(arguments.paths[1]), "is a second ledger", "name one")
    [path] = arguments.paths
    metrics = arguments.metric or [None]
    if len(metrics) > 1:
        raise ConfigError("import", "--metric", metrics[1], "is a second metric", "name one")
    attempts, metric = read_ledger(path, metrics[0])
    better = arguments.direction or known_direction(metric)
    if better not in ("min", "max"):
        problem = "is not known" if arguments.direction is None else "is not a direction of a ledger"
        raise ConfigError("import", "--direction", arguments.direction, problem, "pass min or max")
    repeats = pooled_sd(attempts)
    sd = repeats if arguments.sd is None else arguments.sd
    if math.isnan(sd):
        problem = "the noise of one run is not known: no attempt has been repeated"
        raise ConfigError(path, "--sd", None, problem, "run the baseline three times, or pass its standard deviation")
    if not 0 < sd < math.inf:
        raise ConfigError(path, "--sd", sd, "is not a standard deviation above 0", "pass that of one run")
    source = "stated" if arguments.sd is not None else "of the rows with one name"
    kept = sum(attempt.kept for attempt in attempts)
    crashed = sum(attempt.value is None for attempt in attempts)
    side = "smaller" if better == "min" else "larger"
    print(
        f"{path}: {counted(len(attempts), 'attempt')}, {kept} kept, {crashed} crashed; {metric}, {side} is better; "
        f"standard deviation of one run {sd:.3g} ({source})"
    )
    print(_in_words(settle(attempts, sd, -1 if better == "min" else 1), attempts))
    return 0


def _in_words(settled: Settled, attempts: list[Attempt]) -> str:
    if not settled.keeps:
        return "nothing was kept after the baseline"
    rows = [("kept", "measured gain", "likely gain", "95% interval", "an improvement", "")]
    for keep in settled.keeps:
        interval = f"[{keep.low:+.3g}, {keep.high:+.3g}]"
        cells = (f"{keep.measured:+.3g}", f"{keep.likely:+.3g}", interval, f"{keep.real:.0%}")
        rows.append((keep.attempt.name, *cells, keep.attempt.text))
    noise = sum(keep.noise for keep in settled.keeps)
    baseline = next(attempt.name for attempt in attempts if attempt.value is not None)
    champion = settled.keeps[-1].attempt.name
    lines = ["", *aligned(rows, (False, True, True, True, True, False)), ""]
    apart = 1.96 * math.sqrt(2) * settled.sd
    lines.append(
        f"{noise} of {counted(len(settled.keeps), 'keep')} measured a gain within the noise: two runs of the same code "
        f"differ by less than {apart:.2g} in 95% of cases"
    )
    lines.append(
        f"from {baseline} to {champion}: measured {settled.measured:+.3g}, likely {settled.likely:+.3g} "
        f"[{settled.low:+.3g}, {settled.high:+.3g}]; the rest is luck, since the best of many attempts was kept"
    )
    lines.append(
        f"next: rerun {_reruns(settled)}. About {settled.wrong:.1f} keeps are no improvements; "
        f"after these reruns about {settled.wrong_after:.1f} decisions are wrong"
    )
    return "\n".join(lines)


def _reruns(settled: Settled) -> str:
    times = {name: settled.reruns.count(name) for name in settled.reruns}
    return ", ".join(
        name if count == 1 else f"{name} {('twice', 'three times')[count - 2]}" for name, count in times.items()
    )
