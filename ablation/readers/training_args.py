"""The settings in `training_args.bin`, which the Trainers of transformers and TRL pickle with `torch.save`.

Nothing that the file names is imported or called. Each object of the libraries below is replaced by a `_Value`, which
keeps the object's arguments; a file that names anything else, to run a command say, is refused.
"""

import pickle
import zipfile
from io import BytesIO
from pathlib import Path
from pickletools import genops
from typing import Any

from ablation.contract.reading import one_line, read_bytes
from ablation.readers.run import Problem

FILE = "training_args.bin"
_KNOWN = ("transformers", "trl", "accelerate", "torch")
_MAX_BYTES = 4 << 20  # real ones have 5 KB
_MAX_VALUES = 10_000
_MAX_TUPLES = 24  # nested, and shared by their places, n of them take 2**n steps to hash as a key of a dictionary
_CHARACTERS = 100  # that count as one value
_OF_THE_MACHINE = ("distributed_state", "deepspeed_plugin", "fsdp_plugin_args", "mixed_precision")


class _Value:
    _args: tuple[Any, ...] = ()

    def __init__(self, *args: Any) -> None:
        self._args = args

    def fields(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if _is_setting(name)}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] not in _KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not a class of the Trainer")
        return type(name, (_Value,), {})  # a new one: whatever the file does to it stays there


def read_training_args(path: Path, problem: Problem) -> dict[str, Any]:
    """Return the settings as `TrainingArguments.to_dict` names them; {} for a refused file, which is reported."""
    try:
        with zipfile.ZipFile(BytesIO(read_bytes(path, _MAX_BYTES))) as archive:
            [member] = [info for info in archive.infolist() if info.filename.endswith("data.pkl")]
            if member.file_size > _MAX_BYTES:
                raise ValueError("it is too long")
            content = archive.read(member)
        words = [(word.name, place) for word, place, _ in genops(content)]
        # The memo is a list: a huge index, which no file of this length needs, would take all memory.
        if any("PUT" in name and (place or 0) > len(content) for name, place in words):
            raise ValueError("it is damaged")
        if sum(name.startswith("TUPLE") for name, _ in words) > _MAX_TUPLES:
            raise ValueError("it holds too many tuples")
        made = _Unpickler(BytesIO(content)).load()
        settings = _Plain().of(made) if isinstance(made, _Value) else {}
        return settings or _refused(path, "it holds no settings", problem)
    except Exception as error:  # whatever a damaged pickle can raise
        return _refused(path, one_line(error, 200) or type(error).__name__, problem)


def _refused(path: Path, why: str, problem: Problem) -> dict[str, Any]:
    remedy = 'in the script, Path("training_args.json").write_text(trainer.args.to_json_string())'
    problem(f"{path}: not read, {why}; to have its settings, write them to the output folder: {remedy}")
    return {}


def _is_setting(name: Any) -> bool:
    """Leave out settings of the machine, and secrets."""
    return (
        isinstance(name, str)
        and not name.startswith("_")
        and not name.endswith("_token")
        and name not in _OF_THE_MACHINE
    )


class _Plain:
    """Makes JSON's values; counts them, since a short file can name one list a billion times."""

    def __init__(self) -> None:
        self.left = _MAX_VALUES

    def of(self, value: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise ValueError("it holds too many values")
        if isinstance(value, type):  # `torch.bfloat16`
            return value.__name__
        if isinstance(value, _Value):  # a record, or one of an enum
            value = value.fields() or (value._args[0] if len(value._args) == 1 else {})
        if isinstance(value, dict):
            return {str(name): self.of(item) for name, item in value.items()}
        if isinstance(value, list | tuple | set):
            return [self.of(item) for item in value]
        if isinstance(value, int) and value.bit_length() > 64:
            raise ValueError("it holds a number of more than 64 bits")
        if isinstance(value, str):
            self.left -= len(value) // _CHARACTERS
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise ValueError(f"it holds a value of type {type(value).__name__}")
