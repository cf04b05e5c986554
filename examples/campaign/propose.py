"""A loop around any proposer: edit, commit, `ablation try`, keep or reset. Here the proposals are random.

python propose.py 60        # after: ablation campaign init ... (README.md)
"""

import random
import re
import subprocess
import sys
from pathlib import Path

CHOICES = {
    "LR": (0.05, 0.1, 0.2, 0.4, 0.8),
    "DECAY": (0.0, 0.01, 0.03, 0.1),
    "MOMENTUM": (0.0, 0.5, 0.8, 0.9),
    "AVERAGE": (False, True),
    "WEIGHT_DECAY": (0.0, 0.001, 0.01, 0.1),
}


def propose(chance: random.Random, text: str) -> tuple[str, str]:
    """Return what to try, and the edited program. Put your model or search here."""
    [(names, values)] = re.findall(r"^([A-Z, _]+) = (.*)$", text, re.MULTILINE)[:1]
    settings = dict(zip(names.split(", "), values.split(", "), strict=True))
    name = chance.choice([*CHOICES])
    settings[name] = str(chance.choice([value for value in CHOICES[name] if str(value) != settings[name]]))
    return f"{name} = {settings[name]}", text.replace(
        f"{names} = {values}", f"{names} = {', '.join(settings.values())}"
    )


program, chance = Path("train.py"), random.Random(0)
for _ in range(int(sys.argv[1])):
    why, text = propose(chance, program.read_text())
    program.write_text(text)
    subprocess.run(["git", "commit", "--quiet", "--all", "-m", why], check=True)
    done = subprocess.run(["ablation", "try", "--why", why], check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    if done.returncode == 2:  # bad input, which stderr has explained
        sys.exit(2)
    if done.returncode != 0:  # 10 reset, 11 run again, 12 crashed, 13 refused
        back = re.search(r"^reset to the verified champion: git reset --hard (\w+)", done.stdout, re.MULTILINE)
        subprocess.run(["git", "reset", "--quiet", "--hard", back[1] if back else "HEAD~1"], check=True)
