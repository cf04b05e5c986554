"""Numbers as a source prints them. The text is kept, because "0.700" is more exact than "0.7".

Printed.of("0.700")         value 0.7, half 0.0005
Printed.of("51.7%")         value 0.517, half 0.0005, shown as a percentage
Cell.of("0.512 ± 0.021")    a number with its spread
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticSerializationUnexpectedValue, core_schema

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_SPREAD = re.compile(r"\s*(?:±|\+/-|\+-|\\pm\b)\s*")
_MARKS = re.compile(r"\*\*|__|\$|\\(?:textbf|mathbf|underline|bm)\b|[{}]|\\(?=%)")
_LONGEST = 40  # characters of a number
_REMEDY = "write a number such as 0.0170, 51.7% or 0.512 ± 0.021"


class _Written:
    """Base of printed numbers in a configuration; `of` reads a number, and pydantic writes it as it was printed."""

    @classmethod
    def of(cls, text: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.of, serialization=core_schema.plain_serializer_function_ser_schema(_text)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": ["number", "string"]}


def _text(value: Any) -> str:
    """Return the text of a printed number; refuse any other value, so that pydantic uses the value's own serializer."""
    if not isinstance(value, _Written):
        raise PydanticSerializationUnexpectedValue(f"{type(value).__name__} is not a printed number")
    return str(value)


@dataclass(frozen=True)
class Printed(_Written):
    """A printed number with its text; the `value` of a percentage is a fraction (0.517 for 51.7%)."""

    text: str
    exact: Fraction
    digits: int  # decimals of the text, before a percentage is divided by 100
    percent: bool = False

    @classmethod
    def of(cls, text: Any, *, percent: bool = False) -> "Printed":
        """Read a text or a number; if `percent` is true, it is a percentage even without a percent sign.

        Raises ValueError if `text` is not a number.
        """
        if isinstance(text, Printed):
            return text
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise ValueError(f"{text!r} is not a number; {_REMEDY}")
        written = text if isinstance(text, str) else repr(text)
        bare = _MARKS.sub("", written).replace("\N{MINUS SIGN}", "-").strip()
        has_sign = bare.endswith("%")
        number = bare.removesuffix("%").strip()
        if len(number) > _LONGEST or not _NUMBER.fullmatch(number):
            raise ValueError(f"{written[:60]!r} is not a number; {_REMEDY}")
        percent = percent or has_sign
        mantissa, _, exponent = number.lower().partition("e")
        digits = len(mantissa.partition(".")[2]) - int(exponent or 0)
        exact = Fraction(number) / (100 if percent else 1)
        return cls(f"{number}%" if percent else number, exact, digits, percent)

    @cached_property
    def value(self) -> float:
        """The printed number as a float."""
        return float(self.exact)

    @cached_property
    def exact_half(self) -> Fraction:
        """Half a unit of the last printed digit, exactly: the most that rounding may have hidden."""
        return Fraction(1, 2) * Fraction(10) ** -self.digits / (100 if self.percent else 1)

    @property
    def half(self) -> float:
        """Half a unit of the last printed digit, as a float."""
        return float(self.exact_half)

    @property
    def low(self) -> Fraction:
        """The least number that rounds to the printed number, whichever way halves are rounded."""
        return self.exact - self.exact_half

    @property
    def high(self) -> Fraction:
        """The largest number that rounds to the printed number, whichever way halves are rounded."""
        return self.exact + self.exact_half

    def show(self, value: float, more: int = 0) -> str:
        """Return another value as text, with the decimals of this number and `more` further decimals."""
        digits = max(self.digits + more, 0)
        return f"{100 * value:.{digits}f}%" if self.percent else f"{value:.{digits}f}"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Cell(_Written):
    """One cell of a table: a number, and its spread if the source prints one."""

    number: Printed
    spread: Printed | None = None

    @classmethod
    def of(cls, text: Any, *, percent: bool = False) -> "Cell":
        """Read `0.512`, `0.512 ± 0.021` or a number; a percent sign after the number or its spread applies to both."""
        if isinstance(text, Cell):
            return text
        if not isinstance(text, str):
            return cls(Printed.of(text, percent=percent))
        number, *spread = _SPREAD.split(text, maxsplit=1)
        percent = percent or "%" in text
        return cls(
            Printed.of(number, percent=percent), Printed.of(spread[0].strip(), percent=percent) if spread else None
        )

    def __str__(self) -> str:
        return f"{self.number} ± {self.spread}" if self.spread else str(self.number)
