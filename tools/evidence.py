"""What commands answer, frozen: run before and after a change that must not change any number.

python tools/evidence.py evidence.json                        # writes what every command answers, without times
python tools/evidence.py new.json --against evidence.json     # exits with 1 and lists what differs

Every method trains on a small synthetic dataset, every strategy learns a stream, and a kernel model on glyphs-light is
asked, extended, exported and served. Numbers are compared to the last digit, so both runs must be on one machine.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.argv[0] = "classnorm"

import numpy as np  # noqa: E402

from classnorm.cli import main as command  # noqa: E402
from classnorm.continual.strategies import STRATEGIES  # noqa: E402
from classnorm.data import load  # noqa: E402
from classnorm.methods import METHODS  # noqa: E402

SMALL = "synthetic:classes=20,unseen=5,rows=400,features=24"
TIMES = ("seconds", "created", "versions", "command", "threads", "cores", "python", "machine", "cpu")
"""Words in the names of values that differ from run to run."""


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if not any(word in k for word in TIMES)}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def answer(*arguments: str) -> Any:
    """What a command prints with `--json`; its error if it fails."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            command([*arguments, "--json"])
        except SystemExit as stop:
            if stop.code:
                return {"error": err.getvalue().strip().splitlines()[-1]}
    return without_times(json.loads(out.getvalue()))


def saved_model(folder: Path) -> dict[str, Any]:
    document = json.loads((folder / "model.json").read_text())
    document.pop("document_sha256", None)
    return document


def run_document(folder: Path) -> Any:
    return without_times(json.loads((folder / "result.json").read_text()))


def served(model: Path, features: np.ndarray) -> dict[str, Any]:
    """Answers of the API."""
    from starlette.testclient import TestClient

    from classnorm.serve import ServeSettings, create_app

    found: dict[str, Any] = {}
    app = create_app(ServeSettings(models=(model,), state=Path("state")))
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        for path, body in {
            "/predict": {"features": features[:4].tolist(), "top": 3},
            "/explain": {"features": features[:1].tolist()},
        }.items():
            found[f"POST {path}"] = client.post(path, json=body).json()
        for path in ("/health", "/classes", "/model", "/openapi.json"):
            response = client.get(path)
            found[f"GET {path}"] = without_times(response.json()) if response.is_success else response.status_code
    return found


def evidence() -> dict[str, Any]:
    found: dict[str, Any] = {"methods": sorted(METHODS), "strategies": sorted(STRATEGIES)}
    for method in sorted(METHODS):
        step = f"train {method}"
        found[step] = answer("train", SMALL, "--method", method, "--validation-splits", "1", "--out", f"runs/{method}")
        print(step, file=sys.stderr)
        if "error" not in found[step]:
            found[f"{step}: result.json"] = run_document(Path(f"runs/{method}/seed-0"))
            found[f"{step}: model.json"] = saved_model(Path(f"runs/{method}/seed-0"))
    for strategy in STRATEGIES:
        step = f"continual {strategy}"
        arguments = (SMALL, "--strategy", strategy, "--tasks", "4", "--out", f"streams/{strategy}", "--jobs", "1")
        found[step] = answer("continual", *arguments)
        print(step, file=sys.stderr)
    found["search"] = answer("search", SMALL, "--trials", "2", "--epochs", "2", "--jobs", "1", "--out", "search")
    found["data check"] = answer("data", "check", "glyphs-light")
    found.update(asked())
    return found


def asked() -> dict[str, Any]:
    """A kernel model on glyphs-light, and everything that one can ask it."""
    found = {"train glyphs-light": answer("train", "glyphs-light", "--method", "kernel", "--out", "runs/glyphs")}
    model, data = "runs/glyphs/seed-0", load("glyphs-light")
    found["train glyphs-light: result.json"] = run_document(Path(model))
    found["train glyphs-light: model.json"] = saved_model(Path(model))
    rows = data.test_rows[::40]
    features = np.asarray(data.features[rows])
    np.save("rows.npy", features)
    names = np.array(data.class_names)[data.labels[rows]]
    np.savez("examples.npz", features=features[:30], labels=names[:30])
    np.savez("unlabelled.npz", features=features)
    found["predict"] = answer("predict", model, "rows.npy", "--reject", "0.1", "--coverage", "0.9", "--top", "3")
    found["predict --examples"] = answer("predict", model, "rows.npy", "--examples", "examples.npz")
    found["evaluate"] = answer("evaluate", model, "glyphs-light")
    found["explain"] = answer("explain", model, "rows.npy", "--top", "3")
    found["suggest"] = answer("suggest", model, "--unlabelled", "unlabelled.npz")
    found["adapt"] = answer("adapt", model, "--examples", "examples.npz", "--out", "adapted")
    found["adapt: model.json"] = saved_model(Path("adapted"))
    found["adapt --unlabelled"] = answer("adapt", model, "--unlabelled", "unlabelled.npz", "--out", "adapted2")
    found["predict adapted"] = answer("predict", "adapted", "rows.npy", "--reject", "0.1", "--coverage", "0.9")
    found["export"] = answer("export", model, "model.onnx")
    found.update(served(Path(model), features))
    return found


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        missing = [f"{where}/{key}: gone" for key in old.keys() - new.keys()]
        missing += [f"{where}/{key}: new" for key in new.keys() - old.keys()]
        both = old.keys() & new.keys()
        return missing + [d for key in both for d in differences(old[key], new[key], f"{where}/{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [d for i, pair in enumerate(zip(old, new, strict=True)) for d in differences(*pair, f"{where}/{i}")]
    return [] if old == new else [f"{where}: {str(old)[:60]} → {str(new)[:60]}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--against", type=Path)
    arguments = parser.parse_args()
    out, against = arguments.out.absolute(), arguments.against and arguments.against.absolute()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        found = evidence()
    text = json.dumps(found, indent=1, sort_keys=True)
    out.write_text(text)
    print(f"{len(found)} answers, sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}")
    if against is None:
        return 0
    changed = differences(json.loads(against.read_text()), json.loads(text))
    print("\n".join(sorted(changed)[:100]) or "nothing differs")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
