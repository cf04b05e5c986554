"""The command `certify`: how often the words of a study's own pipeline are wrong where the truth is known."""

import argparse

from tracker.cli.common import check_study
from tracker.cli.folders import results_folder
from tracker.cli.terminal import paragraph
from tracker.judge.certificate.files import CERTIFICATE, certified
from tracker.judge.certificate.record import Evidence, StudyCertificate
from tracker.judge.certificate.tally import describe
from tracker.store.current import load_or_collect
from tracker.store.database import Store


def run_certify(arguments: argparse.Namespace) -> int:
    """Certify one study or all; print what is certified of each word, and the record of all studies."""
    results = results_folder(arguments)
    with Store(load_or_collect(results)) as store:
        check_study(store, "certify", arguments.study)
        made = certified(store, results, arguments.study)
    for certificate in made.studies:
        if arguments.study in (None, certificate.study):
            print("\n".join(_lines(certificate)), end="\n\n")
    print("all studies")
    for word in made.words:
        print(paragraph(f"{word.word}: {word.status}; {word.why}", "  "))
    print(f"{results / CERTIFICATE}: {len(made.studies)} studies")
    return 0


def _lines(certificate: StudyCertificate) -> list[str]:
    seeds = f"{certificate.variants} variants, up to {certificate.seeds} seeds"
    lines = [f"{certificate.study} ({seeds}; splits worth {certificate.splits:.1f} independent trials)"]
    lines += [paragraph(f"{word.word}: {word.status}; {word.why}", "  ") for word in certificate.words]
    if certificate.evidence:
        lines.append(f"  {'word':10}  {'wrong in':>8}  {'at most':>7}  {'promised':>8}  {'trials':>6}  {'worth':>6}")
    lines += [_row(found) for found in certificate.evidence]
    for power in certificate.power:
        effect = f"an effect of {power.effect:.3g}" if power.level == "mde" else "no effect"
        lines.append(f"  {power.word} where it is true ({effect}): {power.right} of {power.trials}")
    if sealed := certificate.sealed:
        held = ", ".join(f"{word} {inside} of {edges}" for word, (inside, edges) in sorted(sealed.by_word.items()))
        lines.append(f"  sealed seeds {sealed.seeds} and {sealed.items} items: inside the predicted interval {held}")
    return lines


def _row(found: Evidence) -> str:
    numbers = f"{found.rate:8.1%}  {found.upper:7.0%}  {found.promise:8.2%}  {found.trials:6}  {found.effective:6.1f}"
    return f"  {found.word:10}  {numbers}  {describe(found.kind)}"
