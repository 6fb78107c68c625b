"""Letters that are no class of the model: how many are recognised the moment they are invented?

Each is composed of a base and a mark of the model's letters and shown in the browser's serif font, as the page does it.
All classes of the model compete. Needs Chromium and a server:

    classnorm serve
    python benchmarks/invented_letters.py http://127.0.0.1:8000
"""

import argparse
import base64
import shutil
import unicodedata

import httpx
import numpy as np
from playwright.sync_api import sync_playwright

PICTURE = """async (letter) => {
  const { pictureOf } = await import("/page/letters.js");
  const bytes = new Uint8Array(await (await pictureOf(letter)).arrayBuffer());
  return btoa(String.fromCharCode(...bytes));
}"""


def new_letters(client):
    """Letter → its attributes, for all letters of a base and a mark that are no class of the model."""
    known = {row["character"] for row in client.get("/classes").json()["classes"]}
    parts = client.get("/model").json()["models"][0]["glyphs"]
    letters = {}
    for base in parts["bases"]:
        for case in ("small", "capital"):
            for mark in parts["marks"]:
                if base[case] and mark["character"]:
                    letter = unicodedata.normalize("NFC", base[case] + mark["character"])
                    letters[letter] = [base["script"], case, base["name"], mark["name"], mark["position"]]
    return {letter: attributes for letter, attributes in letters.items() if letter not in known}


def place(client, letter, attributes, picture):
    """Where the class is among the five best when it is added; None if it is not."""
    name = f"new {letter}"
    client.post("/classes", json={"name": name, "attributes": attributes}).raise_for_status()
    answer = client.post("/predict", files={"files": picture}, params={"top": 5}).raise_for_status().json()
    client.delete("/classes", params={"name": name}).raise_for_status()
    classes = [row["class"] for row in answer["predictions"][0]]
    return classes.index(name) if name in classes else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with httpx.Client(base_url=options.address, timeout=60) as client, sync_playwright() as driver:
        letters = new_letters(client)
        chosen = np.random.default_rng(options.seed).permutation(list(letters))[: options.count]
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(options.address)
        pictures = {letter: base64.b64decode(page.evaluate(PICTURE, letter)) for letter in map(str, chosen)}
        browser.close()
        places = [place(client, letter, letters[letter], picture) for letter, picture in pictures.items()]
    first, five = places.count(0), sum(where is not None for where in places)
    print(f"{len(places)} of {len(letters)} new letters: {first} recognised, {five} among the five best")


if __name__ == "__main__":
    main()
