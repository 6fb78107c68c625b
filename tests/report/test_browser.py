"""The page in a real browser: it renders, and is no wider than the screen."""

import re
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.slow

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--virtual-time-budget=2000",
]
# Chromium's own window is never narrower than 500 px; a frame is.
FRAME = """<!doctype html><body style="margin:0">
<iframe id="page" src="{source}" style="width:{width}px;height:900px;border:0"></iframe>
<script>addEventListener("load", () => {{
  const page = document.getElementById("page").contentDocument, root = page.documentElement;
  const images = [...page.images];
  document.title = JSON.stringify([root.scrollWidth, root.clientWidth, page.body.scrollHeight, images.length,
    images.filter(image => image.complete && image.naturalWidth > 0).length,
    getComputedStyle(page.querySelector(".scroll")).overflowX]);
}});</script></body>"""


@pytest.fixture(scope="module")
def chromium():
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("skipped: no Chromium on PATH to open the page in")
    return program


@pytest.mark.parametrize("width", [1100, 390])
def test_the_page_renders_and_is_no_wider_than_the_screen(chromium, report_on_two_datasets, tmp_path, width):
    frame = report_on_two_datasets / f"frame-{width}.html"
    frame.write_text(FRAME.format(source="index.html", width=width))
    command = [chromium, *FLAGS, f"--user-data-dir={tmp_path}", "--allow-file-access-from-files", "--dump-dom"]
    done = subprocess.run([*command, frame.as_uri()], capture_output=True, text=True, timeout=60, check=True)
    title = re.search(r"<title>\[(.*?)\]</title>", done.stdout)
    assert title, done.stdout[:500]
    scroll_width, client_width, height, images, loaded, overflow = title[1].split(",")
    assert int(client_width) in range(width - 20, width + 1)
    assert int(scroll_width) <= int(client_width)
    assert int(height) > 2000
    assert int(images) == int(loaded) == 10
    assert overflow.strip('"') == "auto"
