"""`python -m benchmarks.weight`: how much there is to know. Counts syntax, so that layout and comments weigh nothing.

statements            of the core without its conformance suite, and of the two backends; docstrings are none
operators by name     comparisons with names of operators, sets and tables of them, outside `sdg/operators`, validation
deep functions        those with more than two levels of compound statements
names of two types    classes of one name in more than one module
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tempo.sdg.operators.table import OPERATORS

ROOT = Path(__file__).resolve().parents[1]
PARTS = {"core": "tempo", "JAX": "backends/tempo_jax/tempo_jax", "PyTorch": "backends/tempo_torch/tempo_torch"}
LEFT_OUT = ("tempo/conformance/",)
NAMES_ALLOWED = ("tempo/sdg/operators/", "tempo/sdg/composites/", "tempo/sdg/validate")
LEVELS = 2
COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)


def modules(folder: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(LEFT_OUT):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def statements(module: ast.Module) -> int:
    found = [node for node in ast.walk(module) if isinstance(node, ast.stmt)]
    return sum(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in found)


def operators_by_name(module: ast.Module) -> int:
    """Comparisons, sets and tables, each once."""
    inner = {
        id(child)
        for node in ast.walk(module)
        if isinstance(node, ast.Compare | ast.Set | ast.Tuple | ast.List | ast.Dict)
        for child in ast.walk(node)
        if child is not node
    }
    return sum(_names_operators(node) for node in ast.walk(module) if id(node) not in inner)


def _names_operators(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(map(_holds_name, (node.left, *node.comparators)))
    if isinstance(node, ast.Dict):
        return sum(map(_is_name, filter(None, node.keys))) > 1
    if isinstance(node, ast.Set | ast.Tuple | ast.List):
        return sum(map(_is_name, node.elts)) > 1 or (isinstance(node, ast.Set) and any(map(_is_name, node.elts)))
    return isinstance(node, ast.MatchValue) and _is_name(node.value)


def _holds_name(node: ast.expr) -> bool:
    return _is_name(node) or (isinstance(node, ast.Set | ast.Tuple | ast.List) and any(map(_is_name, node.elts)))


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in OPERATORS


def depth(node: ast.AST) -> int:
    """Of compound statements; `elif` is no deeper than its `if`, inner functions count for themselves."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, depth(child) + (isinstance(child, COMPOUND) and not is_elif))
    return deepest


def main() -> None:
    deep, named, owners = 0, Counter[str](), defaultdict[str, list[str]](list)
    for title, folder in PARTS.items():
        total = 0
        for name, module in modules(folder):
            total += statements(module)
            functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
            deep += sum(depth(function) > LEVELS for function in functions)
            if not name.startswith(NAMES_ALLOWED) and (count := operators_by_name(module)):
                named[name] = count
            for each in module.body:
                if isinstance(each, ast.ClassDef):
                    owners[each.name.lstrip("_")].append(name)
        print(f"statements, {title:22} {total:6}")
    twice = {name: places for name, places in owners.items() if len(places) > 1}
    print(f"operators by name, places          {sum(named.values()):6}, in {len(named)} modules")
    print(f"deep functions                     {deep:6}")
    print(f"names of two types or more         {len(twice):6}")
    print("\noperators by name:")
    for name, count in named.most_common():
        print(f"  {count:3} {name}")
    print("\nnames of two types or more:")
    for name, places in sorted(twice.items(), key=lambda item: -len(item[1])):
        print(f"  {name}: {', '.join(places)}")


if __name__ == "__main__":
    main()
