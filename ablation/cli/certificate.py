"""The command `certify`: how often the words of a study's own pipeline are wrong where the truth is known."""

import argparse

from ablation.cli.common import check_study
from ablation.cli.folders import results_folder
from ablation.cli.terminal import paragraph, print_json
from ablation.judge.certificate.files import CERTIFICATE, certified
from ablation.judge.certificate.record import StudyCertificate
from ablation.judge.certificate.tally import describe
from ablation.store.current import load_or_collect
from ablation.store.database import Store


def run_certify(arguments: argparse.Namespace) -> int:
    """Certify one study or all; print what is certified of each word."""
    results = results_folder(arguments)
    with Store(load_or_collect(results)) as store:
        check_study(store, "certify", arguments.study)
        made = certified(store, results, arguments.study)
    shown = [certificate for certificate in made.studies if arguments.study in (None, certificate.study)]
    if arguments.json:
        print_json("certify", [certificate.model_dump(mode="json") for certificate in shown])
        return 0
    for certificate in shown:
        print("\n".join(_lines(certificate)), end="\n\n")
    print(f"{results / CERTIFICATE}: {len(made.studies)} studies")
    return 0


def _lines(certificate: StudyCertificate) -> list[str]:
    lines = [f"{certificate.study} ({certificate.variants} variants, up to {certificate.seeds} seeds)"]
    for word in certificate.words:
        lines.append(
            paragraph(f"{word.word}: {word.status}{' ' if word.status == 'calibrated' else '; '}{word.why}", "  ")
        )
    if certificate.evidence:
        lines.append(f"  {'word':15}  {'wrong in':>8}  {'at most':>7}  {'promised':>8}  {'trials':>6}")
    for found in certificate.evidence:
        numbers = f"{found.rate:8.1%}  {found.upper:7.1%}  {found.promise:8.2%}  {found.trials:6}"
        lines.append(f"  {found.word:15}  {numbers}  {describe(found)}")
    for power in certificate.power:
        effect = f"an effect of {power.effect:.3g}" if power.effect else "no effect"
        lines.append(f"  {power.word} where it is true ({effect}): {power.right} of {power.trials}")
    return lines
