"""Judging results: contrasts, power, interim analyses, verdicts, and the choice of seeds to add.

A call of this package, `ablation.judge(child, parent)`, calls `ablation.api.judge`: an imported package hides any
function with its name.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Judge(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return import_module("ablation.api").judge(*arguments, **options)


sys.modules[__name__].__class__ = _Judge
