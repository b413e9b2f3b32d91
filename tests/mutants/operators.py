"""The mistakes that are planted: cosmic-ray's that a person might make, and four of our own."""

from collections.abc import Iterator
from typing import Any

from cosmic_ray.operators.operator import Operator
from parso.python.tree import Keyword, Name
from parso.tree import BaseNode

_CORE = {
    *("AddNot", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceUnaryOperator_Delete_Not"),
    *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "NumberReplacer", "ZeroIterationForLoop"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ReplaceUnaryOperator_USub_UAdd"),
    "RemoveDecorator",
}
_SWAPS = {
    "ReplaceComparisonOperator": (
        *("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is", "Lt_LtE", "Lt_GtE"),
        *("LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt"),
    ),
    "ReplaceBinaryOperator": (
        *("Add_Sub", "Sub_Add", "Mul_FloorDiv", "Div_Mul", "FloorDiv_Mul", "Mod_Add"),
        *("Pow_Mul", "BitOr_BitAnd", "BitAnd_BitOr", "LShift_RShift", "RShift_LShift"),
    ),
}
_CONDITIONS = {"where", "filter", "filter_by", "having"}

CHOSEN = {
    *(f"core/{name}" for name in _CORE),
    *(f"core/{kind}_{swap}" for kind, swaps in _SWAPS.items() for swap in swaps),
}
"""Of the eleven replacements that cosmic-ray has for each operator, these: the rest is noise."""

Positions = Iterator[tuple[tuple[int, int], tuple[int, int]]]


class LeaveOutStatement(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """A call, a `raise`, or an assignment to an attribute or item that is forgotten."""

    def mutation_positions(self, node: Any) -> Positions:
        """Where statements can be left out."""
        if node.type == "simple_stmt" and _can_go(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """`pass` instead of the statement."""
        prefix = node.children[0].get_first_leaf().prefix
        node.children[0] = Keyword("pass", node.start_pos, prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        """None: the tests of cosmic-ray do not see this operator."""
        return ()


def _can_go(statement: Any) -> bool:
    if statement.type == "expr_stmt":
        target, operator = statement.children[:2]
        return target.type in {"atom_expr", "power"} or getattr(operator, "value", "=") != "="
    return statement.type in {"atom_expr", "power", "await", "raise_stmt"}


class LeaveOutCondition(Operator):  # type: ignore[misc]
    """One condition of a query's `where` that is forgotten."""

    def mutation_positions(self, node: Any) -> Positions:
        """Each condition."""
        for condition in _conditions(node):
            yield condition.start_pos, condition.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The call without the condition."""
        gone = _conditions(node)[index]
        if gone.parent is node:
            node.children.remove(gone)
            return node
        rest = gone.parent.children
        at = rest.index(gone)
        del rest[at : at + 2]
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        """None: the tests of cosmic-ray do not see this operator."""
        return ()


def _conditions(node: Any) -> list[Any]:
    if node.type != "trailer" or node.children[0].value != "(":
        return []
    before = node.get_previous_sibling()
    if before is None or before.type != "trailer" or before.children[-1].value not in _CONDITIONS:
        return []
    return _arguments(node)


def _arguments(call: BaseNode) -> list[Any]:
    inner = call.children[1:-1]
    if inner and inner[0].type == "arglist":
        inner = inner[0].children
    return [argument for argument in inner if argument.type != "operator"]


class LeaveOutArgument(Operator):  # type: ignore[misc]
    """One argument with a name that is forgotten, so that its default is taken."""

    def mutation_positions(self, node: Any) -> Positions:
        """Each argument that has a name."""
        for argument in _named(node):
            yield argument.start_pos, argument.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The call without the argument."""
        gone = _named(node)[index]
        rest = gone.parent.children
        at = rest.index(gone)
        del rest[at : at + 2 if gone.parent.type == "arglist" else at + 1]
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        """None: the tests of cosmic-ray do not see this operator."""
        return ()


def _named(node: Any) -> list[Any]:
    if node.type != "trailer" or node.children[0].value != "(":
        return []
    return [
        argument
        for argument in _arguments(node)
        if argument.type == "argument" and getattr(argument.children[1], "value", "") == "="
    ]


class CatchNothing(Operator):  # type: ignore[misc]
    """An `except` that catches nothing; cosmic-ray's own fails at names with a dot."""

    def mutation_positions(self, node: Any) -> Positions:
        """Each `except` that names what it catches."""
        if node.type == "except_clause":
            yield node.children[1].start_pos, node.children[1].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """No exception instead of those that are named."""
        node.children[1] = Name("()", node.children[1].start_pos, " ")
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        """None: the tests of cosmic-ray do not see this operator."""
        return ()


OWN: dict[str, type[Any]] = {
    each.__name__: each
    for each in (LeaveOutStatement, LeaveOutCondition, LeaveOutArgument, CatchNothing)
}
"""What cosmic-ray lacks, and what people do most: to leave something out."""
