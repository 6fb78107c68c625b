"""The page in a real browser, with a real server and real models."""

import base64
import io
import json
import shutil

import httpx
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import expect, sync_playwright

from classnorm.data import glyph_images, glyphs
from classnorm.scoring import Scorer, fit
from classnorm.serve import ServeSettings

pytestmark = pytest.mark.long

UNSEEN = "latin small letter e with acute"
HTML = '<img src=x onerror="document.title=1"><b>bold</b>'


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("skipped: no Chromium on PATH to open the page in (`make browser` installs it)")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def site(serve, model_folder, letters, folder):
    """A server with two models."""
    other = fit(letters, method="eszsl", calibration="none").save(folder / "eszsl")
    settings = ServeSettings(models=(model_folder, other), port=0, state=folder / "state", save_folder=folder / "saved")
    with serve(settings) as address:
        yield address


@pytest.fixture
def visit(browser, site):
    """Opens the page as a new visitor; nothing may go wrong on it unnoticed."""
    contexts, problems = [], []

    def open_page(address=site):
        context = browser.new_context(viewport={"width": 1200, "height": 900})
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not problems


def picture(name, font="DejaVuSerif"):
    """A PNG of a letter, dark on light, in a font that the models are not trained on."""
    file = io.BytesIO()
    Image.fromarray(255 - glyph_images.rendered(glyphs.character(name), font)).save(file, "PNG")
    return file.getvalue()


def striped():
    """A PNG that no letter looks like."""
    file = io.BytesIO()
    pixels = np.full((96, 96), 255, dtype=np.uint8)
    pixels[::8] = 0
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def drop(page, selector, *contents, event="drop"):
    """Drop or paste files on an element, as a browser does it."""
    page.evaluate(
        """([selector, contents, event]) => {
          const data = new DataTransfer();
          contents.forEach((content, i) => data.items.add(new File(
            [Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], `${i}.png`, { type: "image/png" })));
          const options = { bubbles: true, cancelable: true };
          const target = document.querySelector(selector);
          target.dispatchEvent(event === "paste"
            ? new ClipboardEvent("paste", { ...options, clipboardData: data })
            : new DragEvent("drop", { ...options, dataTransfer: data }));
        }""",
        [selector, [base64.b64encode(content).decode() for content in contents], event],
    )


def give(page, card, name):
    card.get_by_role("button", name="Give to a class").click()
    page.get_by_label("Class", exact=True).fill(name)
    page.get_by_role("button", name="Give", exact=True).click()


def drag(page, source, target):
    """Drag with the mouse, in small steps as a hand does."""
    page.set_viewport_size({"width": 1200, "height": 2500})  # both are in view
    start, end = source.bounding_box(), target.bounding_box()
    page.mouse.move(start["x"] + 20, start["y"] + 20)
    page.mouse.down()
    page.mouse.move(start["x"] + 40, start["y"] + 40, steps=4)
    page.mouse.move(end["x"] + 20, end["y"] + 20, steps=4)
    page.mouse.up()


def share(card, name):
    """The percentage that a card shows for a class."""
    row = card.locator("> .bars li").filter(has=card.page.get_by_text(name, exact=True))
    return int(row.locator(".percent").inner_text().removesuffix("%"))


def invent(page, name, like=UNSEEN, attribute="diaeresis"):
    page.get_by_role("radio", name="Like a … but …").check()
    page.get_by_label("Like this class").fill(like)
    page.get_by_label("but with other attributes").fill(attribute)
    page.get_by_label(attribute, exact=True).check()
    page.get_by_label("Name of the class").fill(name)
    page.get_by_role("button", name="Let it compete").click()
    expect(page.locator("#outcome")).to_contain_text("now competes with")


def test_pictures_that_are_dropped_pasted_and_chosen_are_classified_as_by_the_api(visit, site):
    page = visit()
    drop(page, "#drop", picture(UNSEEN), picture("latin small letter o"))
    expect(page.locator(".card .bars").first).to_be_visible()
    drop(page, "body", picture("greek small letter omega"), event="paste")
    expect(page.locator(".card > .bars")).to_have_count(3)
    page.set_input_files(
        "#files", {"name": "n.png", "mimeType": "image/png", "buffer": picture("latin small letter n")}
    )
    expect(page.locator(".card > .bars")).to_have_count(4)
    card = page.locator(".card").nth(2)
    expect(card.locator(".answer")).to_contain_text(UNSEEN)
    expect(card.locator(".badge").first).to_contain_text("unseen")
    answer = httpx.post(f"{site}/predict", files={"files": picture(UNSEEN)}, params={"model": "all"}).json()
    best = answer["predictions"][0][0]
    assert best["class"] == UNSEEN and share(card, UNSEEN) == round(100 * best["probability"])
    expect(card.locator(".other")).to_contain_text(answer["models"][1]["predictions"][0][0]["class"])


def test_a_file_that_is_no_picture_is_one_line_and_the_others_are_classified(visit):
    page = visit()
    drop(page, "#drop", picture(UNSEEN), b"not a picture")
    expect(page.locator("#toast")).to_contain_text("not an image")
    expect(page.locator(".card > .bars")).to_have_count(1)


def test_a_picture_of_no_class_is_called_unknown(visit, serve, letters, folder):
    fitted = fit(letters, method="kernel").save(folder / "with-thresholds")  # they come from validation
    with serve(ServeSettings(models=(fitted,), port=0, state=folder / "state")) as address:
        page = visit(address)
        drop(page, "#drop", striped(), picture(UNSEEN))
        expect(page.locator(".card > .bars")).to_have_count(2)
        expect(page.locator(".card").nth(0).locator(".answer")).to_have_text("Unknown")
        expect(page.locator(".card").nth(0).locator(".unknown")).to_contain_text("none of the classes")
        expect(page.locator(".card").nth(1).locator(".answer")).to_contain_text(UNSEEN)
        page.close()


def test_samples_of_unseen_classes_are_one_click_away(visit):
    page = visit()
    # The same six each time.
    page.evaluate("let x = 1; Math.random = () => (x = (16807 * x) % 2147483647) / 2147483647")
    page.get_by_role("button", name="Try some").press("Enter")
    expect(page.locator(".card > .bars")).to_have_count(6)
    assert page.locator(".card .right").count() >= 2  # chance is 1 in 426 each


def test_an_invented_letter_wins_over_the_classes_it_was_taken_for(visit, site):
    page, name = visit(), "latin small letter r with ring above"
    page.locator("#letter-base").select_option("latin r")
    for mark in page.locator("#way input[type=checkbox][value]").all():
        mark.set_checked(mark.get_attribute("value") == "ring above")
    expect(page.get_by_label("Name of the class")).to_have_value(name)
    page.get_by_role("button", name="Let it compete").click()
    expect(page.locator("#outcome")).to_contain_text("1 of 1 picture changes its answer")
    card = page.locator(".card")
    expect(card.locator(".answer")).to_contain_text(name)
    expect(card.locator(".badge").first).to_contain_text("yours")
    expect(card.locator(".was")).to_contain_text("was: latin small letter")

    page.reload()
    expect(page.locator("#class-list")).to_contain_text(f"r̊{name}")
    expect(page.locator("#model-line")).to_contain_text("1 yours")
    assert name not in visit().locator("#class-list").inner_text()  # another visitor


def test_a_class_like_another_but_with_other_attributes_competes(visit):
    page = visit()
    drop(page, "#drop", picture(UNSEEN))
    expect(page.locator(".card > .bars")).to_have_count(1)
    invent(page, "mine")
    expect(page.locator("#class-list")).to_contain_text("mine")
    expect(page.locator(".sentence")).to_have_text(f"Like {UNSEEN} but with diaeresis.")
    page.get_by_role("button", name="Remove the class mine").click()
    expect(page.locator("#class-list")).not_to_contain_text("mine")


def test_html_in_the_name_of_a_class_is_shown_as_text(visit):
    page = visit()
    drop(page, "#drop", picture(UNSEEN))
    expect(page.locator(".card > .bars")).to_have_count(1)
    invent(page, HTML)
    expect(page.locator("#class-list")).to_contain_text(HTML)
    give(page, page.locator(".card"), HTML)
    expect(page.locator("#toast")).to_contain_text(HTML)
    page.get_by_label("Find a class on the map").fill(HTML)
    page.get_by_label("Find a class on the map").press("Enter")
    expect(page.locator("#map-said")).to_contain_text(HTML)
    assert page.locator("img[src=x]").count() == page.locator("main b:text('bold')").count() == 0
    assert page.title() != "1"


def test_given_pictures_move_the_answer_and_can_be_taken_back(visit):
    page = visit()
    drop(page, "#drop", picture(UNSEEN, "DejaVuSerif-BoldItalic"))
    card, row = page.locator(".card"), page.locator("#class-list li")
    expect(card.locator("> .bars")).to_be_visible()
    before = share(card, UNSEEN)
    give(page, card, UNSEEN)
    expect(row).to_contain_text("1 picture given")
    expect(page.locator("#toast")).to_contain_text("got 1 picture")
    assert share(card, UNSEEN) > before
    page.locator("#toast").get_by_role("button", name="Undo").click()
    expect(row).not_to_contain_text("given")
    expect(page.locator("#toast")).to_contain_text("is as it was")
    assert share(card, UNSEEN) == before

    drag(page, card.locator(".thumb"), row)
    expect(row).to_contain_text("1 picture given")


def test_a_saved_model_has_the_classes_of_the_visitor(visit, folder):
    page = visit()
    invent(page, "a class to keep")
    page.get_by_role("button", name="Save…").click()
    page.get_by_label("Name of the folder").fill("kept")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#toast")).to_contain_text("Saved as kept")
    assert "a class to keep" in Scorer.load(folder / "saved" / "kept").class_names
    assert json.loads((folder / "saved" / "kept" / "model.json").read_text())["class_names"][-1] == "a class to keep"


def test_an_explanation_names_the_classes_and_attributes(visit):
    page = visit()
    drop(page, "#drop", picture(UNSEEN))
    button = page.get_by_role("button", name="Why?")
    button.press("Enter")
    expect(page.locator(".why caption")).to_contain_text(f"Why {UNSEEN} and not latin small letter")
    assert page.locator(".why tbody tr").count() >= 2
    expect(button).to_be_focused()


def test_a_drawn_letter_is_recognised(visit):
    from math import cos, pi, sin

    page = visit()
    page.locator("#paper").scroll_into_view_if_needed()
    box = page.locator("#paper").bounding_box()

    def stroke(points):
        for number, (x, y) in enumerate(points):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
            if number == 0:
                page.mouse.down()
        page.mouse.up()

    turns = [2 * pi * step / 40 for step in range(41)]
    stroke([(0.5 + 0.15 * cos(turn), 0.565 + 0.17 * sin(turn)) for turn in turns])
    stroke([(0.46, 0.32), (0.57, 0.2)])
    expect(page.locator("#guesses")).to_contain_text("latin small letter o with acute")
    page.get_by_role("button", name="Put it among the pictures").click()
    expect(page.locator(".card > .bars")).to_have_count(1)


def test_the_map_tells_its_classes_to_the_keyboard_and_the_pointer(visit):
    page = visit()
    page.get_by_label("Find a class on the map").fill(UNSEEN)
    page.get_by_label("Find a class on the map").press("Enter")
    expect(page.locator("#map-said")).to_contain_text(f"{UNSEEN} (unseen); near it: ")
    page.locator("#map-canvas").hover()
    expect(page.locator("#map-tip")).to_contain_text(f"{UNSEEN} (unseen)")
    page.locator("#map-canvas").press("ArrowRight")
    expect(page.locator("#map-said")).not_to_contain_text(f"{UNSEEN} (unseen); near")


def test_the_page_asks_for_the_token_of_the_server(visit, serve, model_folder, folder):
    token = "a token of these tests"
    settings = ServeSettings(models=(model_folder,), port=0, token=token, state=folder / "state")
    with serve(settings) as address:
        page = visit(f"{address}/#token={token}")
        expect(page.locator("#model-line")).to_contain_text("340 seen")
        assert "token" not in page.url
        page.close()


def test_the_page_fits_any_screen_and_axe_finds_no_serious_violation(visit):
    page = visit()
    drop(page, "#drop", picture(UNSEEN))
    page.get_by_role("button", name="Why?").click()
    invent(page, "mine")
    for width in (1200, 390):
        for scheme in ("light", "dark"):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            assert page.evaluate("document.documentElement.scrollWidth") == width
            violations = Axe().run(page).response["violations"]
            serious = [violation for violation in violations if violation["impact"] in ("serious", "critical")]
            assert not [(violation["id"], [node["html"] for node in violation["nodes"]]) for violation in serious]
