"""JSON as brokers read it: fastjson 1 up to 5.3.4, fastjson 2 since (`RemotingSerializable#fromJson`).

Both take comments, single quotes, some commas too many, and numbers as Java writes them, but not in the same places:
checked against the decoders of 4.4.0 to 5.5.1 (`tests/real_broker/test_config_files.py`).
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

_SPACE = re.compile(r"[ \t\r\n\f\b]*")
_COMMENT = re.compile(r"//[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z)", re.DOTALL)
_STRINGS = {quote: re.compile(rf"{quote}((?:[^{quote}\\]|\\.)*){quote}", re.DOTALL) for quote in "\"'"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {**dict(zip("btnvfFr", "\b\t\n\v\f\f\r", strict=True)), **{digit: chr(int(digit)) for digit in "01234567"}}
_PLAIN_ESCAPES = "\"'/\\"
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?[LSBFD]?", re.ASCII)
_FRACTION = re.compile(r"[+-]?\.\d+([eE][+-]?\d+)?", re.ASCII)
_NUMBER_KEY = re.compile(r"[+-]?\d+", re.ASCII)
_NAME = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
_DATE = re.compile(r"new\s+Date\((-?\d+)\)", re.ASCII)
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_NOTHING = ("NaN", "undefined")  # which fastjson 1 takes for null
_SETS = ("Set", "TreeSet")
_END = "\x1a"  # JSONLexer#EOI
_FILLING = "\0 \t\r\n\f\b"  # as past the end of a file that was cut by a power failure
_BOM = "\ufeff"


def parse(text: str, *, second: bool) -> Any:
    """The value of a text as fastjson 1 reads it, or fastjson 2 (`second`); raise ValueError where it refuses it."""
    try:
        return _Parser(text, second=second).document()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


class _Parser:
    """Reads one text from `position` on."""

    def __init__(self, text: str, *, second: bool) -> None:
        self.text = text
        self.second = second
        self.position = 0

    def document(self) -> Any:
        """The whole text."""
        if self.second:
            self._skip_space()
        self.position += self._peek() == _BOM
        self._skip()
        value = self._value(0)
        self._skip()
        if self.second and self._peek() == ",":
            self.position += 1
            self._skip()
        if self.text[self.position :].partition(_END)[0].strip(_FILLING):
            self._fail("Extra data")
        return value

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _fail(self, what: str) -> NoReturn:
        line = self.text.count("\n", 0, self.position) + 1
        column = self.position - self.text.rfind("\n", 0, self.position)
        raise ValueError(f"{what}: line {line} column {column} (char {self.position})")

    def _skip_space(self) -> None:
        found = _SPACE.match(self.text, self.position)
        self.position = found.end() if found else self.position

    def _skip(self, *, comments: bool = True) -> None:
        """Skip blanks, and comments where they may stand."""
        self._skip_space()
        while comments and (comment := _COMMENT.match(self.text, self.position)):
            self.position = comment.end()
            self._skip_space()

    def _value(self, depth: int) -> Any:
        begin = self._peek()
        if begin == "{":
            return self._object(depth)
        if begin == "[":
            return self._array(depth)
        if begin in _STRINGS:
            return self._string(begin)
        number = _NUMBER.match(self.text, self.position) or (
            _FRACTION.match(self.text, self.position) if self.second else None
        )
        if number and not self.text[number.end() : number.end() + 1].isalnum():
            self.position = number.end()
            return _number(number[0])
        return self._word(depth)

    def _word(self, depth: int) -> Any:
        date = None if self.second else _DATE.match(self.text, self.position)
        if date:
            self.position = date.end()
            return int(date[1])
        name = _NAME.match(self.text, self.position)
        word = name[0] if name else ""
        if not name or not (word in _WORDS or word in _SETS or (word in _NOTHING and not self.second)):
            self._fail("Expecting value")
        self.position = name.end()
        if word in _SETS:
            self._skip()
            return self._array(depth)
        return _WORDS.get(word)

    def _string(self, quote: str) -> str:
        found = _STRINGS[quote].match(self.text, self.position)
        if found is None:
            self._fail("Unterminated string")
        if "\\" not in found[1]:
            self.position = found.end()
            return found[1]
        text = _ESCAPE.sub(self._unescaped, found[1])
        self.position = found.end()
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _unescaped(self, escape: re.Match[str]) -> str:
        code = escape[1]
        if len(code) > 1:
            return chr(int(code[1:], 16))
        if code not in _ESCAPED and code not in _PLAIN_ESCAPES:
            self._fail("Invalid \\escape")
        return _ESCAPED.get(code, code)

    def _array(self, depth: int) -> list[Any]:
        if self._peek() != "[":
            self._fail("Expecting '['")
        self.position += 1
        values: list[Any] = []
        while True:
            self._skip()
            if not self.second:
                self._skip_commas()
            if self._peek() == "]" and not (self.second and values and self._last_mark() == ","):
                self.position += 1
                return values
            values.append(self._value(depth + 1))
            self._skip()
            if self._peek() == ",":
                self.position += 1
            elif self._peek() != "]":
                self._fail("Expecting ',' delimiter")

    def _last_mark(self) -> str:
        """The last character before blanks."""
        return self.text[: self.position].rstrip(" \t\r\n\f\b")[-1:]

    def _skip_commas(self) -> None:
        while self._peek() == ",":
            self.position += 1
            self._skip()

    def _object(self, depth: int) -> dict[str, Any]:
        """An object; one whose names are numbers is read by a reader of its own (a map of Integer)."""
        self.position += 1
        self._skip()
        is_numbered = _NUMBER_KEY.match(self.text, self.position) is not None
        content: dict[str, Any] = {}
        while True:
            if not self.second and not is_numbered:
                self._skip_commas()
            if self._peek() == "}":
                self.position += 1
                return content
            name = self._name(is_numbered=is_numbered)
            self._skip(comments=is_numbered and not self.second)
            if self._peek() != ":":
                self._fail("Expecting ':' delimiter")
            self.position += 1
            self._skip(comments=not self.second or is_numbered)
            is_object = self._peek() == "{"
            content[name] = self._value(depth + 1)
            self._to_next(depth, is_object=is_object, is_numbered=is_numbered)

    def _name(self, *, is_numbered: bool) -> str:
        begin = self._peek()
        if begin in _STRINGS:
            return self._string(begin)
        found = _NUMBER_KEY.match(self.text, self.position)
        if found is None and not self.second and not is_numbered:
            found = _NAME.match(self.text, self.position)
        if found is None:
            self._fail("Expecting property name enclosed in double quotes")
        self.position = found.end()
        return found[0].lstrip("+")

    def _to_next(self, depth: int, *, is_object: bool, is_numbered: bool) -> None:
        """Go on to the next name of an object, or to its end."""
        before = self.position
        self._skip(comments=not self.second or (is_object and not is_numbered))
        has_comment = bool(self.text[before : self.position].strip(" \t\r\n\f\b"))
        if self._peek() == ",":
            if self.second and has_comment and depth:
                self._fail("Expecting ',' delimiter")
            self.position += 1
            self._skip(comments=not (self.second and is_numbered))
            if self.second and not depth:
                self._skip_commas()
        elif self._peek() != "}" and not self.second and not is_numbered:
            self._fail("Expecting ',' delimiter")


def _number(text: str) -> int | float:
    """A number as Java has it; a letter after it is its type."""
    digits = text.rstrip("LSBFD")
    return float(digits) if any(mark in digits for mark in ".eE") else int(digits)
