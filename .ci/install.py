"""Install into the environment of this Python what pip's arguments name, by uv if it can.

uv takes a fifth of pip's time. It does not read pip's configuration, so it is told where pip finds packages. Where pip
is told nothing, torch comes from its own index and fits the machine's devices: without an accelerator that is a
fifteenth of the download.
"""

import ast
import os
import subprocess
import sys

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
TOLD_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
LISTS = {"find-links": ","}  # uv's separator, where it is no space


def uv_environment() -> dict[str, str]:
    """The variables that tell uv what pip's files and variables tell pip; uv's own that are set count more."""
    told: dict[str, str] = {}
    lines = subprocess.check_output([*PIP, "config", "list"], text=True).splitlines()
    for line in sorted(lines, key=lambda line: line.startswith(":env:")):  # variables count more than files
        name, _, value = line.partition("=")  # global.find-links='/wheels', or :env:.find-links='/wheels'
        key = name.rpartition(".")[2]
        if key in TOLD_UV and value[:1] in "'\"":
            told[TOLD_UV[key]] = LISTS.get(key, " ").join(ast.literal_eval(value).split())
    if not told.keys() & {"UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS"}:
        told["UV_TORCH_BACKEND"] = "auto"
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **told, **os.environ}  # the strategy is pip's


def main(arguments: list[str]) -> int:
    """Return the exit status of uv, or else of pip."""
    if subprocess.call([*PIP, "install", "--quiet", "uv"]) == 0:
        uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
        if subprocess.call([*uv, *arguments], env=uv_environment()) == 0:
            return 0
    print("uv did not install: pip does, in a few minutes", file=sys.stderr)
    return subprocess.call([*PIP, "install", "--quiet", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
