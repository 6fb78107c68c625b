"""Why this letter and not another: which parts of a letter speak for an answer, and whether they really matter."""

from dataclasses import replace

import numpy as np

from classnorm import fit
from classnorm.data import load

LETTER = "latin small letter e with acute"  # an unseen class

glyphs = load("glyphs-light")
scorer = fit(glyphs, "kernel")
images = glyphs.features[glyphs.labels == glyphs.class_names.index(LETTER)]

for explanation in scorer.explain(images[:2], top=4):
    print(f"says {explanation['class']} rather than {explanation['against']}, by {explanation['difference']:.2f}:")
    for entry in explanation["attributes"]:
        print(f"  {entry['name']:20}{entry['contribution']:+.2f}")
    shown = sum(entry["contribution"] for entry in explanation["attributes"])
    assert np.isclose(shown, explanation["difference"])

about = scorer.explain_class(LETTER, images, top=4)
print(f"{LETTER}: {about['right']} of {about['rows']} images right")
print("  known by:", ", ".join(entry["name"] for entry in about["attributes"]))
print("  leans on:", ", ".join(neighbour["class"] for neighbour in about["neighbours"]))

# Without the accent in its description, the class is no longer recognised as well.
table = scorer.descriptors.copy()
table[glyphs.class_names.index(LETTER), scorer.attribute_names.index("acute")] = 0
changed = replace(scorer, classes=replace(scorer.classes, descriptors=table))
share = np.mean([name == LETTER for name in changed.predict(images)])
print(f"  right without 'acute' in the description: {share:.0%}")
assert share < about["right"] / about["rows"]
