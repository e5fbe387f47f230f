"""The parser of the filter language: text such as `amount > 10 and category in ('a', 'b')` -> Expression.

A hand-written recursive descent over one token list. Keywords are case-insensitive, column names are
not. A name that is a keyword or has other characters is written in backquotes or double quotes; strings
are written in single quotes, with '' for a quote. Every syntax error is an InvalidOptionError that
gives its position in the text.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from streamlake.errors import InvalidOptionError
from streamlake.spec.expressions.expressions import (
    FALSE,
    TRUE,
    Expression,
    Operation,
    Predicate,
    all_of,
    any_of,
    negate,
)

_MAX_DEPTH = 100
_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<hex>[xX]'(?:[0-9a-fA-F]{2})*')
  | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?![\w.]))
  | (?P<string>'(?:[^']|'')*')
  | (?P<quoted>`(?:[^`]|``)*`|"(?:[^"]|"")*")
  | (?P<word>[^\W\d]\w*)
  | (?P<symbol><=|>=|<>|!=|==|[=<>(),.+\-])
    """,
    re.VERBOSE,
)
_COMPARISONS = {
    "=": Operation.EQ,
    "==": Operation.EQ,
    "!=": Operation.NOT_EQ,
    "<>": Operation.NOT_EQ,
    "<": Operation.LT,
    "<=": Operation.LT_EQ,
    ">": Operation.GT,
    ">=": Operation.GT_EQ,
}
_FLIPPED = {
    Operation.EQ: Operation.EQ,
    Operation.NOT_EQ: Operation.NOT_EQ,
    Operation.LT: Operation.GT,
    Operation.LT_EQ: Operation.GT_EQ,
    Operation.GT: Operation.LT,
    Operation.GT_EQ: Operation.LT_EQ,
}
_KEYWORDS = frozenset(
    ["and", "or", "not", "in", "is", "null", "between", "like", "true", "false", "starts_with"]
)
_TYPED_LITERALS = frozenset(["date", "timestamp", "timestamptz", "time", "uuid", "decimal"])


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int

    @property
    def keyword(self) -> str:
        return self.text.lower() if self.kind in ("word", "symbol") else ""


@dataclass(frozen=True)
class _Column:
    name: str
    position: int
    double_quoted: bool


@dataclass(frozen=True)
class _Value:
    value: Any
    position: int


def parse_filter(text: str) -> Expression:
    """The expression of a filter text. Raises InvalidOptionError at the first syntax error."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._tokenize())
        self._at = 0
        self._depth = 0

    def parse(self) -> Expression:
        if self._peek().kind == "end":
            self._fail("the filter is empty; leave it out to read every row", 0)
        expression = self._disjunction()
        token = self._peek()
        if token.kind != "end":
            self._fail(f"expected 'and', 'or' or the end of the filter, found {token.text!r}", token.position)
        return expression

    def _tokenize(self) -> Iterator[_Token]:
        at = 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None:
                self._fail(self._unreadable(at), at)
            kind = str(found.lastgroup)
            if kind != "space":
                yield _Token(kind, found.group(), at)
            at = found.end()
        yield _Token("end", "", at)

    def _unreadable(self, at: int) -> str:
        char = self._text[at]
        if char == "'":
            return "this string has no closing quote (write '' for a quote inside a string)"
        if char in '`"':
            return "this quoted name has no closing quote"
        if char.isdigit() or char == ".":
            return f"{self._text[at : at + 20].split()[0]!r} is not a number"
        return f"unexpected character {char!r}"

    def _fail(self, problem: str, position: int) -> NoReturn:
        where = "at the end" if position >= len(self._text) else f"at position {position + 1}"
        near = self._text[position : position + 20]
        raise InvalidOptionError(
            f"filter {self._text!r}: {problem} ({where}{f', near {near!r}' if near else ''})"
        )

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _next(self) -> _Token:
        token = self._peek()
        self._at += 1
        return token

    def _accept(self, *keywords: str) -> bool:
        """Consume exactly this sequence of keywords or symbols, or nothing."""
        if all(self._peek(ahead).keyword == word for ahead, word in enumerate(keywords)):
            self._at += len(keywords)
            return True
        return False

    def _expect(self, symbol: str, after: str) -> None:
        token = self._peek()
        if not self._accept(symbol):
            found = repr(token.text) if token.text else "nothing"
            self._fail(f"expected {symbol!r} {after}, found {found}", token.position)

    def _disjunction(self) -> Expression:
        parts = [self._conjunction()]
        while self._accept("or"):
            parts.append(self._conjunction())
        return any_of(*parts)

    def _conjunction(self) -> Expression:
        parts = [self._negation()]
        while self._accept("and"):
            parts.append(self._negation())
        return all_of(*parts)

    def _negation(self) -> Expression:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail(f"more than {_MAX_DEPTH} nested parentheses or nots", self._peek().position)
        try:
            if self._accept("not"):
                return negate(self._negation())
            if self._accept("("):
                inner = self._disjunction()
                self._expect(")", "to close the parenthesis")
                return inner
            return self._predicate()
        finally:
            self._depth -= 1

    def _predicate(self) -> Expression:
        if self._peek().keyword == "starts_with" and self._peek(1).text == "(":
            return self._starts_with_call()
        left = self._operand()
        token = self._peek()
        if token.text in _COMPARISONS and token.kind == "symbol":
            self._next()
            return self._comparison(left, _COMPARISONS[token.text], self._operand())
        if isinstance(left, _Value):
            if isinstance(left.value, bool):
                return TRUE if left.value else FALSE
            self._fail("a value on its own is not a condition; compare it with a column", left.position)
        negated = self._accept("not")
        found = self._suffix(left)
        if found is not None:
            return negate(found) if negated else found
        if negated:
            self._fail("expected 'in', 'between', 'like' or 'starts_with' after 'not'", self._peek().position)
        if self._accept("is"):
            return self._is(left)
        return self._made(Operation.EQ, left, True)

    def _suffix(self, column: _Column) -> Expression | None:
        if self._accept("in"):
            return self._in(column)
        if self._accept("between"):
            low = self._value("after 'between'")
            self._expect("and", "between the two values of 'between'")
            high = self._value("after 'and'")
            return all_of(self._made(Operation.GT_EQ, column, low), self._made(Operation.LT_EQ, column, high))
        if self._accept("like"):
            return self._made(Operation.LIKE, column, self._string("like"))
        if self._accept("starts_with"):
            return self._made(Operation.STARTS_WITH, column, self._string("starts_with"))
        return None

    def _starts_with_call(self) -> Expression:
        self._at += 2
        column = self._operand()
        if isinstance(column, _Value):
            self._fail("starts_with(column, 'prefix') takes a column first", column.position)
        self._expect(",", "between the column and the prefix")
        prefix = self._string("starts_with")
        self._expect(")", "after the prefix")
        return self._made(Operation.STARTS_WITH, column, prefix)

    def _is(self, column: _Column) -> Expression:
        negated = self._accept("not")
        token = self._next()
        if token.keyword == "null":
            found = self._made(Operation.IS_NULL, column)
        elif token.keyword == "nan":
            found = self._made(Operation.IS_NAN, column)
        elif token.keyword in ("true", "false"):
            # "is true" is never null, unlike "= true": its negation includes the nulls.
            value = token.keyword == "true"
            if negated:
                return any_of(
                    self._made(Operation.NOT_EQ, column, value), self._made(Operation.IS_NULL, column)
                )
            return self._made(Operation.EQ, column, value)
        else:
            self._fail("expected 'null', 'nan', 'true' or 'false' after 'is'", token.position)
        return negate(found) if negated else found

    def _in(self, column: _Column) -> Expression:
        self._expect("(", "after 'in'")
        values = [self._value("in the list of 'in'")]
        while self._accept(","):
            values.append(self._value("in the list of 'in'"))
        self._expect(")", "to close the list of 'in'")
        return Predicate(Operation.IN, column.name, tuple(values), column.double_quoted)

    def _comparison(self, left: _Column | _Value, op: Operation, right: _Column | _Value) -> Expression:
        if isinstance(left, _Column) and isinstance(right, _Value):
            return self._made(op, left, right.value)
        if isinstance(left, _Value) and isinstance(right, _Column):
            return self._made(_FLIPPED[op], right, left.value)
        if isinstance(right, _Column):
            hint = "; a string stands in single quotes" if right.double_quoted else ""
            self._fail(
                f"a column can be compared with a value only, not with another column{hint}", right.position
            )
        self._fail("one side of a comparison must be a column", left.position)

    @staticmethod
    def _made(op: Operation, column: _Column, *values: Any) -> Expression:
        return Predicate(op, column.name, values, column.double_quoted)

    def _value(self, where: str) -> Any:
        operand = self._operand()
        if isinstance(operand, _Column):
            self._fail(f"expected a value {where}, found the name {operand.name!r}", operand.position)
        return operand.value

    def _string(self, operator: str) -> str:
        token = self._next()
        if token.kind != "string":
            self._fail(f"expected a string in single quotes after {operator!r}", token.position)
        return _unquoted(token.text)

    def _operand(self) -> _Column | _Value:
        token = self._next()
        if token.kind == "string":
            return _Value(_unquoted(token.text), token.position)
        if token.kind == "hex":
            return _Value(bytes.fromhex(token.text[2:-1]), token.position)
        if token.kind == "number":
            return _Value(_number(token.text), token.position)
        if token.text in ("-", "+") and self._peek().kind == "number":
            number = _number(self._next().text)
            return _Value(_negative(number) if token.text == "-" else number, token.position)
        if token.keyword in ("true", "false"):
            return _Value(token.keyword == "true", token.position)
        if token.keyword == "null":
            self._fail(
                "a comparison with null is never true; write 'is null' or 'is not null'", token.position
            )
        if token.keyword in _TYPED_LITERALS and self._peek().kind == "string":
            return _Value(self._typed(token.keyword, self._next()), token.position)
        if token.kind == "quoted" or (token.kind == "word" and token.keyword not in _KEYWORDS):
            return self._column(token)
        if token.kind == "word":
            self._fail(
                f"{token.text!r} is a keyword; a column of that name stands in backquotes", token.position
            )
        self._fail(
            "expected a column or a value" + (f", found {token.text!r}" if token.text else ""), token.position
        )

    def _column(self, first: _Token) -> _Column:
        parts, token, double_quoted = [], first, False
        while True:
            if token.kind == "quoted":
                quote = token.text[0]
                double_quoted = double_quoted or quote == '"'
                parts.append(token.text[1:-1].replace(quote * 2, quote))
            elif token.kind == "word":
                parts.append(token.text)
            else:
                self._fail("expected a field name after '.'", token.position)
            if not self._accept("."):
                break
            token = self._next()
        if self._peek().text == "(":
            self._fail(f"there is no function {'.'.join(parts)!r} in filters", first.position)
        return _Column(".".join(parts), first.position, double_quoted)

    def _typed(self, kind: str, token: _Token) -> Any:
        text = _unquoted(token.text)
        try:
            if kind == "date":
                return date.fromisoformat(text)
            if kind == "uuid":
                return uuid.UUID(text)
            if kind == "decimal":
                return Decimal(text)
        except (ValueError, InvalidOperation):
            self._fail(f"{text!r} is not a {kind}", token.position)
        return text


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _negative(number: int | float | Decimal) -> int | float | Decimal:
    # The minus operator rounds a Decimal to the context's 28 digits.
    return number.copy_negate() if isinstance(number, Decimal) else -number


def _number(text: str) -> int | float | Decimal:
    if text.isdigit():
        return int(text)
    return float(text) if "e" in text.lower() else Decimal(text)
