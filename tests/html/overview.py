"""Opens the page of several recordings on a small screen, goes to one of them by keyboard and back, and prints what it saw as
JSON.

    python tests/html/overview.py BROWSER REPORT.html [FOLDER_FOR_SCREENSHOTS]
"""

import json
import pathlib
import sys

from playwright.sync_api import sync_playwright

saw = {}
with sync_playwright() as playwright:
    arguments = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    browser = playwright.chromium.launch(executable_path=sys.argv[1], args=arguments)
    page = browser.new_context(color_scheme="dark", viewport={"width": 390, "height": 844}).new_page()
    page.set_default_timeout(600_000)
    console = []
    page.on("console", lambda m: console.append(f"{m.type}: {m.text}"))
    page.on("pageerror", lambda e: console.append(f"error: {e}"))
    page.goto(pathlib.Path(sys.argv[2]).resolve().as_uri())
    page.wait_for_selector("body[data-ready]")
    sideways = "document.documentElement.scrollWidth > innerWidth"
    saw["heading"], saw["overview"] = page.locator("h1:visible").inner_text(), page.locator("#overview").inner_text()
    saw["sideways"] = [page.evaluate(sideways)]
    if len(sys.argv) > 3:
        page.screenshot(path=pathlib.Path(sys.argv[3]) / "overview.png", full_page=True)
    # The first recording of the table, as who has no mouse opens it.
    page.locator("#overview table button").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("body[data-ready]")
    saw["opened"], saw["hidden"] = page.locator("h1:visible").inner_text(), page.locator("#overview").is_hidden()
    saw["sideways"].append(page.evaluate(sideways))
    if len(sys.argv) > 3:
        page.screenshot(path=pathlib.Path(sys.argv[3]) / "one.png", full_page=True)
    page.locator("#run").select_option("-1")
    saw["back"] = page.locator("h1:visible").inner_text()
    # On a large screen a card's text takes the card's width.
    page.set_viewport_size({"width": 1180, "height": 900})
    widths = "[...document.querySelectorAll('#overview .finding')].map(c => c.lastChild.offsetWidth / c.offsetWidth)"
    saw["text"] = page.evaluate(widths)
    saw["console"] = console
    browser.close()
print(json.dumps(saw))
