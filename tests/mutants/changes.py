"""The changes that are made to a module: each to one place, and each of a kind that a programmer might make."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import CodeType

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATIONS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Change:
    """One change: its line and that of its statement, how this begins, what it was and has become, and the module."""

    line: int
    statement: int
    within: str
    text: str
    code: CodeType


def changes_of(source: str, functions: Collection[str] = (), path: str = "changed") -> Iterator[Change]:
    """All changes of a module, or of the functions that are named; docstrings, types and imports stay."""
    tree = ast.parse(source)
    for function, statement, node in [*_places(tree, functions)]:
        within, line = ast.unparse(statement).splitlines()[0], ast.unparse(node)
        for changed in _changed(node):
            _Replacing(node, changed).visit(function)
            code = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
            yield Change(node.lineno, statement.lineno, within, f"{line}  ->  {ast.unparse(changed)}", code)
            _Replacing(changed, node).visit(function)


def with_marks(source: str, path: str, mark: str) -> CodeType:
    """A module that calls `mark` with the line of each statement of a function before it is carried out."""
    tree = ast.parse(source)
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        for node in [*ast.walk(function)]:
            for name, block in ast.iter_fields(node):
                if name in ("body", "orelse", "finalbody") and isinstance(block, list) and not _is_marked(block, mark):
                    block[:] = [each for statement in block for each in (_mark(statement, mark), statement)]
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def _mark(statement: ast.stmt, mark: str) -> ast.stmt:
    call = ast.Call(ast.Name(mark, ast.Load()), [ast.Constant(statement.lineno)], [])
    return ast.copy_location(ast.Expr(call), statement)


def _is_marked(block: list[ast.stmt], mark: str) -> bool:
    match block:
        case [ast.Expr(ast.Call(ast.Name(name))), *_]:
            return name == mark
    return not block


Place = ast.expr | ast.stmt


def _places(tree: ast.AST, functions: Collection[str]) -> Iterator[tuple[ast.FunctionDef, ast.stmt, Place]]:
    """What may be changed, in the order of the module, each with its function and its statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (not functions or node.name in functions):
            for statement in node.body:
                yield from ((node, *place) for place in _below(statement, statement))


def _below(node: ast.AST, statement: ast.stmt) -> Iterator[tuple[ast.stmt, Place]]:
    if isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield from _below(node.value, node)
        return
    if isinstance(node, ast.FunctionDef | ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr):
        return
    if isinstance(node, ast.stmt):
        statement = node
    if isinstance(node, ast.expr | ast.stmt):
        yield statement, node
    for child in ast.iter_child_nodes(node):
        yield from _below(child, statement)


def _changed(node: Place) -> Iterator[Place]:
    """The forms that a place may take."""
    for changed in _changed_expression(node) if isinstance(node, ast.expr) else _changed_statement(node):
        yield ast.copy_location(changed, node)


def _changed_expression(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left, [operator], comparators):
            yield from (ast.Compare(left, [other()], comparators) for other in _COMPARISONS[type(operator)])
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATIONS:
            yield ast.BinOp(left, _OPERATIONS[type(operator)](), right)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() as value):
            yield ast.Constant(value + 1)
        case ast.Name(str() as name, ast.Load()) if name in _NAMES:
            yield ast.Name(_NAMES[name], ast.Load())
        case ast.IfExp(_, body, orelse):
            yield from (body, orelse)


def _changed_statement(node: ast.stmt) -> Iterator[ast.stmt]:
    match node:
        case ast.If(test) if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield ast.If(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        case ast.Return(ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.Continue():
            yield ast.Break()
        case ast.AugAssign(target, operator, value) if type(operator) in _OPERATIONS:
            yield ast.AugAssign(target, _OPERATIONS[type(operator)](), value)
        case ast.Expr(ast.Call()):
            yield ast.Pass()
        case ast.Expr(ast.Yield() | ast.YieldFrom()):
            yield ast.Expr(ast.YieldFrom(ast.Tuple([], ast.Load())))  # the function stays a generator


class _Replacing(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, place: Place, other: Place) -> None:
        self._place = place
        self._other = other

    def visit(self, node: ast.AST) -> ast.AST:
        """As the base."""
        return self._other if node is self._place else self.generic_visit(node)
