"""Install packages, named as for `pip install`, into this Python's environment with uv or, if uv fails, with pip.

uv takes a fifth of pip's time. It does not read pip's configuration, so this script passes it pip's indexes. If pip has
no configured index, uv installs torch from PyTorch's index, in the build for the machine's devices. Without an
accelerator, that build is a fifteenth of the download.
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
LISTS = {"find-links": ","}  # uv separates several values by these, and by a space otherwise


def uv_environment() -> dict[str, str]:
    """Return environment variables for uv with the settings of pip's files and variables; uv's own take precedence."""
    told: dict[str, str] = {}
    lines = subprocess.check_output([*PIP, "config", "list"], text=True).splitlines()
    for line in sorted(lines, key=lambda line: line.startswith(":env:")):  # variables override files
        name, _, value = line.partition("=")  # global.find-links='/wheels', or :env:.find-links='/wheels'
        key = name.rpartition(".")[2]
        if key in TOLD_UV and value[:1] in "'\"":
            told[TOLD_UV[key]] = LISTS.get(key, " ").join(ast.literal_eval(value).split())
    if not told.keys() & {"UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS"}:
        told["UV_TORCH_BACKEND"] = "auto"
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **told, **os.environ}  # as pip does


def main(arguments: list[str]) -> int:
    """Install with uv or, if that fails, with pip; return the exit status."""
    if subprocess.call([*PIP, "install", "--quiet", "uv"]) == 0:
        uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
        if subprocess.call([*uv, *arguments], env=uv_environment()) == 0:
            return 0
    print("uv cannot install the packages; pip installs them now, which takes a few minutes", file=sys.stderr)
    return subprocess.call([*PIP, "install", "--quiet", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
