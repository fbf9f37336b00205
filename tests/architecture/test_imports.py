"""Which part of the project may import which: the arrows of docs/architecture.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from itertools import accumulate
from pathlib import Path

import pytest

import redrive

SOURCE = Path(redrive.__file__).parent

BELOW_EVERYTHING = {
    "collector", "errors", "diagnostics", "printable", "masking", "entry_point", "listener",
    "version",
}  # fmt: skip
RUNTIME = {"java"}
LINES = {"text_log"}
"""The form of the log's lines, which is the same in every process of a job."""

ALLOWED: Mapping[str, set[str]] = {
    "errors": {"diagnostics"},
    "collector": set(),
    "entry_point": {"errors"},
    "diagnostics": {"printable"},
    "listener": set(),
    "printable": set(),
    "masking": set(),
    "forms": set(),
    "settings_file": {"forms", "rules", "engine", "kafka"},
    "messages": set(),
    "rules": {"messages"},
    "topology": {"messages", "forms"},
    "engine": {"messages", "rules", "topology"},
    "kafka": {"messages", "engine", "forms"},
    "checkpoints": {"messages", "engine", "kafka"},
    "configuration": {
        "messages", "rules", "engine", "kafka", "topology", "checkpoints", "forms",
        "settings_file",
    },
    "outcomes": {"messages", "rules", "topology", "engine", "kafka", "configuration"},
    "operations": {
        "messages", "rules", "topology", "engine", "kafka", "configuration", "outcomes",
        "checkpoints", "settings",
    },
    "streaming": {
        "messages", "rules", "topology", "kafka", "engine", "configuration", "outcomes",
        "checkpoints", "operations",
    }
    | RUNTIME
    | LINES,
    "what_if": {
        "messages", "rules", "topology", "kafka", "engine", "configuration", "outcomes",
        "operations", "streaming",
    },
    "observe": {
        "messages", "kafka", "engine", "configuration", "outcomes", "checkpoints",
        "operations", "streaming",
    },
    "text_log": set(),
    "java": set(),
    "broker": RUNTIME,
}  # fmt: skip
"""Parts that may import these and what is below everything; others may import all."""

CLIENTS = {"pyspark", "delta", "deltalake", "confluent_kafka", "kafka"}
FORBIDDEN: Mapping[str, set[str]] = {
    "messages": CLIENTS,
    "rules": CLIENTS,
    "topology": CLIENTS,
    "engine": CLIENTS,
    "checkpoints": {"pyspark", "delta"},
}
"""Libraries that a part must do without, to stay pure or to run without Spark."""

KAFKA_CLIENTS = {"confluent_kafka", "kafka"}
IMPORTS_OF_CLIENTS = {
    # This list only gets shorter.
    # The demo reads by kafka-python, which the job's data never pass, and the broker
    # is warmed up before anything else uses it.
    "demo/client.py",
    "broker/embedded.py",
}
"""Modules outside of ``redrive.kafka`` that import a Kafka client."""


@cache
def _modules() -> tuple[tuple[str, Path, ast.Module], ...]:
    """Every module with the part of the project that it belongs to."""
    return tuple(
        (
            path.relative_to(SOURCE).parts[0].removesuffix(".py"),
            path,
            ast.parse(path.read_text(encoding="utf-8")),
        )
        for path in sorted(SOURCE.rglob("*.py"))
    )


def _imported(path: Path, nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that some statements of a module import."""
    package = ["redrive", *path.relative_to(SOURCE).parent.parts]
    for node in nodes:
        if isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called == "import_module" and isinstance(node.args[0], ast.Constant):
                yield node.lineno, str(node.args[0].value)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # "from redrive import rules" names a part as well as "from redrive.rules import x".
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


@cache
def _imports() -> Mapping[Path, tuple[tuple[int, str], ...]]:
    """What each module imports, functions and all."""
    return {path: tuple(_imported(path, ast.walk(tree))) for _, path, tree in _modules()}


def _run_on_import(node: ast.AST) -> Iterator[ast.AST]:
    """The statements that run when a module is imported: none of functions or for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _run_on_import(child)


def _dotted(path: Path) -> str:
    """The name of a module, which for the file of a package is the package's."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def _prefixes(name: str) -> Iterator[str]:
    """A dotted name and the packages that it is in, the outermost first."""
    return accumulate(name.split("."), lambda package, part: f"{package}.{part}")


@cache
def _arrows() -> tuple[tuple[str, str, str], ...]:
    """Importing part, imported part or library, and where."""
    return tuple(
        (part, _target(name), f"{path.relative_to(SOURCE)}:{line} imports {name}")
        for part, path, _ in _modules()
        for line, name in _imports()[path]
    )


def _target(name: str) -> str:
    """The part of the project or the library that a dotted name belongs to."""
    first, *rest = name.split(".")
    return rest[0] if first == "redrive" and rest else first


PARTS = {path.stem for path in SOURCE.iterdir()}


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_a_part_imports_only_what_is_below_it(part: str) -> None:
    allowed = ALLOWED[part] | {part}
    if part not in BELOW_EVERYTHING:
        allowed |= BELOW_EVERYTHING
    wrong = [
        where
        for source, target, where in _arrows()
        if source == part and target in PARTS and target not in allowed
    ]
    assert wrong == []


@pytest.mark.parametrize("part", sorted(FORBIDDEN))
def test_a_part_does_without_clients(part: str) -> None:
    wrong = [
        where for source, target, where in _arrows() if source == part and target in FORBIDDEN[part]
    ]
    assert wrong == []


def test_kafka_clients_have_one_importer() -> None:
    """All but the modules named above reach Kafka through ``redrive.kafka``."""
    arrows = {
        str(path.relative_to(SOURCE))
        for part, path, _ in _modules()
        if part != "kafka"
        for _, name in _imports()[path]
        if name.partition(".")[0] in KAFKA_CLIENTS
    }
    assert sorted(arrows - IMPORTS_OF_CLIENTS) == []
    assert sorted(IMPORTS_OF_CLIENTS - arrows) == [], "no longer needed: take them off the list"


def test_parts_do_not_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for source, target, _ in _arrows():
        if target in PARTS and target != source:
            graph.setdefault(source, set()).add(target)
    TopologicalSorter(graph).prepare()  # raises CycleError and names the circle


def _exported(tree: ast.Module) -> set[str]:
    """What ``__all__`` of a package names."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def _imported_by_others() -> Iterator[tuple[str, str]]:
    """Importer and dotted name of all imports, also those of programs and examples in docs."""
    for path, imported in _imports().items():
        yield from ((_dotted(path), name) for _, name in imported)
    root = SOURCE.parents[1]
    for path in [*(root / "docs").glob("*.md"), *(root / "deploy").rglob("*.py")]:
        for line in re.findall("from redrive.* import .*", path.read_text(encoding="utf-8")):
            names = _imported(SOURCE, ast.walk(ast.parse(line)))
            yield from ((path.name, name) for _, name in names)


def test_a_package_exports_what_others_use() -> None:
    """Its ``__all__`` names the modules and names that others import from it, and no more.

    A name with an underscore is of its module alone.
    """
    exported = {
        _dotted(path): _exported(tree) for _, path, tree in _modules() if path.stem == "__init__"
    }
    del exported["redrive"]
    used: dict[str, set[str]] = {package: set() for package in exported}
    for importer, name in _imported_by_others():
        is_private = (
            name.rpartition(".")[2].startswith("_") and name != "redrive.version.__version__"
        )
        assert not (is_private and name.startswith("redrive.")), f"{importer} imports {name}"
        for package in exported:
            if name.startswith(f"{package}.") and not f"{importer}.".startswith(f"{package}."):
                used[package].add(name.removeprefix(f"{package}.").partition(".")[0])
    assert exported == used


DECIDING = {"select_rule", "attempts_left", "check_limits", "Matcher"}
"""What chooses a rule or refuses a put. The language's own analysis is part of ``rules``."""


def test_only_the_engine_decides() -> None:
    wrong = [
        where
        for part, _, where in _arrows()
        if part not in {"engine", "rules", "topology"} and where.rpartition(".")[2] in DECIDING
    ]
    assert wrong == []


def _graph(imports: Mapping[Path, Iterable[tuple[int, str]]]) -> dict[str, set[str]]:
    """The modules that each imports, without packages that it is in."""
    modules = {_dotted(path): imported for path, imported in imports.items()}
    graph: dict[str, set[str]] = {}
    for importer, imported in modules.items():
        graph[importer] = set()
        for _, name in imported:
            known = [prefix for prefix in _prefixes(name) if prefix in modules]
            graph[importer].update(
                prefix
                for prefix in known
                if prefix == known[-1] or not f"{importer}.".startswith(f"{prefix}.")
            )
    return graph


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Each can be imported first, and meets no other that is half imported.

    With a module the packages that it is in are imported, as far as its importer is in none of
    them. What a function imports when it is called makes no circle, nor what only types need.
    """
    imports = {path: _imported(path, _run_on_import(tree)) for _, path, tree in _modules()}
    TopologicalSorter(_graph(imports)).prepare()


MODULES_IN_CIRCLES = 0
"""This number only gets lower."""


def test_few_modules_need_each_other_to_be_read() -> None:
    graph = {name: targets - {name} for name, targets in _graph(_imports()).items()}
    while leaves := {name for name, targets in graph.items() if not targets & graph.keys()}:
        graph = {name: targets for name, targets in graph.items() if name not in leaves}
    importers = {target for targets in graph.values() for target in targets}
    while roots := graph.keys() - importers:
        graph = {name: targets for name, targets in graph.items() if name not in roots}
        importers = {target for targets in graph.values() for target in targets}
    assert len(graph) == MODULES_IN_CIRCLES, sorted(graph)
