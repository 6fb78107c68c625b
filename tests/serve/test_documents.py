"""What docs/serving.md says is so."""

import re
from pathlib import Path

from classnorm.serve.app import document

TEXT = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")


def test_the_client_in_the_documentation_runs(address, capsys):
    [code] = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    assert len(code.splitlines()) <= 30
    exec(compile(code.replace("http://127.0.0.1:8000", address), "serving.md", "exec"), {})
    assert "hooked e" in capsys.readouterr().out


def test_the_documentation_lists_every_endpoint():
    listed = set(re.findall(r"`(GET|POST|DELETE) (/[a-z.]*)", TEXT))
    described = {(method.upper(), path) for path, operations in document()["paths"].items() for method in operations}
    assert listed == {*described, ("GET", "/page")}
