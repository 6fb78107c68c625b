"""Change the code in small ways and see whether the tests notice.

    python tools/mutation.py [--mutants 150] [--seed 0] [--package nn metrics]

Draws mutants of `src/classnorm/nn` and `src/classnorm/metrics`: a comparison turned round, + for −, × for /, another
constant, a dropped `not`, an `and` for an `or`, no return value, a dropped statement. Each runs in a fork of a process
that has PyTorch loaded, with the examples in the module's docstrings and the test file of the module, until the first
failure. Survivors are printed as a difference. (Linux, macOS)
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import difflib
import doctest
import importlib
import importlib.machinery
import io
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 90  # CPU seconds after which a mutant counts as killed: it does not end

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.MatMult: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """A change of one node of a module."""

    file: Path
    line: int
    kind: str
    source: str
    """Of the whole module, changed."""

    @property
    def module(self) -> str:
        return ".".join(self.file.relative_to(ROOT / "src").with_suffix("").parts)

    @property
    def tests(self) -> list[Path]:
        """The test file of the module; of a package's `__init__`, all test files of the package."""
        folder = ROOT / "tests" / self.file.parent.name
        own = folder / f"test_{self.file.stem}.py"
        return [own] if own.exists() else sorted(folder.glob("test_*.py"))


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What the node can be changed to."""
    other = copy.deepcopy(node)
    if isinstance(other, ast.Compare) and type(other.ops[0]) in COMPARISONS:
        other.ops[0] = COMPARISONS[type(other.ops[0])]()
        yield "comparison", other
    elif isinstance(other, ast.BinOp | ast.AugAssign) and type(other.op) in OPERATORS:
        other.op = OPERATORS[type(other.op)]()
        yield "operator", other
    elif isinstance(other, ast.BoolOp):
        other.op = ast.Or() if isinstance(other.op, ast.And) else ast.And()
        yield "and/or", other
    elif isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.Not | ast.USub):
        yield "dropped sign", other.operand
    elif isinstance(other, ast.Constant) and type(other.value) in (int, float, bool):
        other.value = not other.value if isinstance(other.value, bool) else other.value * 2 + 1
        yield "constant", other
    elif isinstance(other, ast.Return) and other.value is not None:
        other.value = ast.Constant(None)
        yield "return value", other
    elif isinstance(other, ast.Expr) and isinstance(other.value, ast.Call):
        yield "dropped call", ast.Pass()


def ignored(node: ast.AST) -> set[int]:
    """Nodes that decide nothing: annotations and messages of errors."""
    nodes: set[int] = set()
    for part in ast.walk(node):
        parts: list[ast.AST | None] = []
        if isinstance(part, ast.AnnAssign | ast.arg):
            parts.append(part.annotation)
        elif isinstance(part, ast.FunctionDef):
            parts.append(part.returns)
        elif isinstance(part, ast.Raise | ast.JoinedStr):
            parts.append(part)
        for found in parts:
            nodes |= {id(inner) for inner in ast.walk(found)} if found is not None else set()
    return nodes


def mutants(file: Path) -> list[Mutant]:
    """All mutants of a file."""
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    skipped, found = ignored(tree), []
    for holder in ast.walk(tree):
        for name, value in ast.iter_fields(holder):
            for place, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(node, ast.AST) or id(node) in skipped:
                    continue
                for kind, changed in changes(node):
                    ast.copy_location(changed, node)
                    _put(holder, name, place, changed)
                    text = ast.unparse(ast.fix_missing_locations(tree))
                    found.append(Mutant(file, getattr(node, "lineno", 0), kind, text))
                    _put(holder, name, place, node)
    return found


def _put(holder: ast.AST, name: str, place: int | None, node: ast.AST) -> None:
    if place is None:
        setattr(holder, name, node)
    else:
        getattr(holder, name)[place] = node


def survives(mutant: Mutant) -> bool:
    """Run the tests with the mutant in a fork."""
    process = os.fork()
    if process == 0:
        os.setpgid(0, 0)
        _test(mutant)
    started = os.times()
    while True:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        used = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13] if _HAS_PROC else []
        seconds = sum(map(int, used)) / os.sysconf("SC_CLK_TCK") if used else os.times().elapsed - started.elapsed
        if seconds > SECONDS:
            os.killpg(process, signal.SIGKILL)
        time.sleep(0.02)


_HAS_PROC = Path("/proc/self/stat").exists()


def _test(mutant: Mutant) -> None:
    """Replace the module by the mutant, run its tests, and end the process: 0 if nothing was noticed."""
    import hypothesis
    import pytest

    code = 1
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            hypothesis.settings.register_profile("few", max_examples=25, database=None)
            hypothesis.settings.load_profile("few")
            _install(mutant)
            arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not long"]
            module = importlib.import_module(mutant.module.removesuffix(".__init__"))
            code = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed
            if code == 0:
                code = int(pytest.main([*arguments, "-c", str(ROOT / "pyproject.toml"), *map(str, mutant.tests)]))
    except BaseException:
        code = 1  # it cannot even be imported
    os._exit(0 if code == 0 else 1)


def _install(mutant: Mutant) -> None:
    """Load the package anew, with the mutant in the place of its module."""
    for name in [name for name in sys.modules if name.split(".")[0] == "classnorm"]:
        del sys.modules[name]
    finder = importlib.machinery.PathFinder
    original = finder.find_spec.__func__  # type: ignore[attr-defined]

    class Loader(importlib.machinery.SourceFileLoader):
        def get_code(self, fullname: str):  # type: ignore[no-untyped-def]
            return compile(mutant.source, str(mutant.file), "exec")

    def find_spec(cls, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        spec = original(cls, fullname, path, target)
        if fullname == mutant.module.removesuffix(".__init__") and spec is not None:
            spec.loader = Loader(fullname, str(mutant.file))
        return spec

    finder.find_spec = classmethod(find_spec)  # type: ignore[method-assign,assignment]


def difference(mutant: Mutant) -> str:
    before = ast.unparse(ast.parse(mutant.file.read_text(encoding="utf-8"))).splitlines()
    lines = difflib.unified_diff(before, mutant.source.splitlines(), lineterm="", n=0)
    return "\n".join(line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--package", nargs="+", default=["nn", "metrics"])
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    for module in ("torch", "scipy.stats", "scipy.optimize", "hypothesis", "pytest", "sklearn", "pandas"):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    files = [file for name in options.package for file in sorted((ROOT / "src" / "classnorm" / name).rglob("*.py"))]
    everything = [mutant for file in files for mutant in mutants(file)]
    sample = random.Random(options.seed).sample(everything, min(options.mutants, len(everything)))
    counts: Counter[str] = Counter()
    for number, mutant in enumerate(sample, start=1):
        alive = survives(mutant)
        counts["survived" if alive else "killed"] += 1
        if alive:
            where = f"{mutant.file.relative_to(ROOT)}:{mutant.line}"
            print(f"survived: {where} ({mutant.kind})\n{difference(mutant)}", flush=True)
        if number % 10 == 0:
            print(f"{number} of {len(sample)}: {counts['killed']} killed", flush=True)
    total = sum(counts.values())
    print(
        f"{counts['killed']} of {total} mutants killed ({100 * counts['killed'] / total:.0f} %), of {len(everything)}"
    )


if __name__ == "__main__":
    main()
