"""Take the pictures in docs/images from a report page: `python docs/make_screens.py [reports/index.html]`.

They need a Chromium of the system. A picture is of few colours, so that it stays small. What the page lacks (items that
changed, say, where no stage left their words) is told, and its picture stays as it is.
"""

import shutil
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Error, Locator, Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
COLOURS = 64
TOUR = ("overview", "changes", "samples", "pair", "curves")
Shot = Callable[[Page], Locator | None]


def first_with(page: Page, selector: str) -> Locator | None:
    """Return the first study's element that fits, scrolled into sight, or None."""
    elements = page.locator(selector)
    if not elements.count():
        return None
    elements.first.scroll_into_view_if_needed()
    return elements.first


def changes(page: Page) -> Locator | None:
    """The variant tree, with the evidence of one change open."""
    evidence = page.locator("article.study").first.locator(".row > details")
    if evidence.count() > 3:
        evidence.nth(3).evaluate("node => { node.open = true; }")
    return first_with(page, "article.study section:has(.tree)")


def samples(page: Page) -> Locator | None:
    """The items that changed along a comparison; one that got better is open."""
    comparisons = page.locator(".row > details:has(.samples li)")
    if not comparisons.count():
        return None
    comparisons.first.evaluate("node => { node.open = true; }")
    comparisons.first.locator(".samples li details").first.evaluate("node => { node.open = true; }")
    return comparisons.first


def table(page: Page) -> Locator | None:
    """The comparison table of a study whose runs broke rules, sorted by them."""
    broken = page.locator(".part:has(> .scroll table.cmp a.broken)")
    if not broken.count():
        return first_with(page, ".part:has(> .scroll table.cmp)")
    broken.first.get_by_role("button", name="Rules broken").dblclick()
    return broken.first


def pair(page: Page) -> Locator | None:
    """Two variants that are not parent and child: the second and the last."""
    element = first_with(page, ".part:has(> .compare)")
    if element is not None:
        element.locator("select.one").select_option(index=element.locator("select.one option").count() - 1)
        element.locator("select.other").select_option(index=1)
    return element


def curves(page: Page) -> Locator | None:
    """Curves over wall time where they are logged, smoothed, with a search for metrics."""
    for element in page.locator(".part:has(> .curves)").all():
        element.scroll_into_view_if_needed()
        element.locator("canvas").wait_for()
        if element.locator(".over").is_enabled():
            element.locator(".options").evaluate("node => { node.open = true; }")
            element.get_by_label("Search metrics").fill("reward|accuracy")
            element.locator(".smooth").fill("0.5")
            element.locator(".over").select_option("time")
            return element
    return first_with(page, ".part:has(> .curves)")


def believe(page: Page) -> Locator | None:
    """Published numbers beside ours, with what the audit found."""
    return first_with(page, "section:has(> .panels)")


def overview(page: Page) -> Locator | None:
    """A row for each study."""
    return first_with(page, "section:has(> .overview)")


SHOTS: dict[str, tuple[Shot, int, int, str]] = {  # picture: what, width of the window, greatest height, colour scheme
    "overview": (overview, 1100, 1200, "light"),
    "changes": (changes, 1100, 1100, "light"),
    "samples": (samples, 1100, 900, "light"),
    "table": (table, 1100, 800, "light"),
    "pair": (pair, 1100, 700, "light"),
    "curves": (curves, 1100, 1000, "light"),
    "believe": (believe, 1100, 900, "light"),
    "phone": (changes, 390, 1000, "dark"),
}


def small(png: bytes, height: int) -> Image.Image:
    """Return the upper part of a picture in few colours."""
    picture = Image.open(BytesIO(png)).convert("RGB")
    picture = picture.crop((0, 0, picture.width, min(picture.height, height)))
    return picture.quantize(COLOURS, dither=Image.Dither.NONE)


def shoot(browser: Browser, url: str, name: str) -> str:
    """Make one picture; return what happened in words."""
    shot, width, height, scheme = SHOTS[name]
    dark = scheme == "dark"
    page = browser.new_page(viewport={"width": width, "height": 1200}, color_scheme="dark" if dark else "light")
    page.goto(url)
    page.locator("html[data-ready]").wait_for(state="attached")
    page.evaluate("document.querySelectorAll('.study > details, .part').forEach((node) => { node.open = true; })")
    element = shot(page)
    if element is None:
        return f"{name}: the page has no such thing; the picture stays as it is"
    page.wait_for_timeout(400)  # the chart is painted in the next frames
    path = IMAGES / f"{name}.png"
    small(element.screenshot(), height).save(path, optimize=True)
    page.close()
    return f"{name}: {path.stat().st_size / 1000:.0f} kB"


def tour() -> str:
    """The pictures one after the other, as the moving one of the README; made from the files that are there."""
    frames = []
    for name in TOUR:
        picture = Image.open(IMAGES / f"{name}.png").convert("RGB")
        frames.append(Image.new("RGB", (1052, 900), picture.getpixel((0, picture.height - 1))))
        frames[-1].paste(picture, ((1052 - picture.width) // 2, 0))
    path = IMAGES / "tour.webp"
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=3500, loop=0, lossless=True, method=6)
    return f"tour: {path.stat().st_size / 1000:.0f} kB"


def main() -> None:
    """Make all pictures, or those that are named after the page."""
    report = Path(sys.argv[1] if len(sys.argv) > 1 else "reports/index.html").resolve()
    chosen = sys.argv[2:] or [*SHOTS]
    if not report.is_file():
        raise SystemExit(f"{report} is not there: `make demo` or `python -m ablation report` writes one")
    chromium = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if chromium is None:
        raise SystemExit("no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in chosen:
            try:
                print(shoot(browser, report.as_uri(), name))
            except Error as error:
                print(f"{name}: {str(error).splitlines()[0]}; the picture stays as it is", file=sys.stderr)
        browser.close()
    print(tour())


if __name__ == "__main__":
    main()
