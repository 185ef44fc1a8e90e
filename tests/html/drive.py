"""Drives a report in a headless Chromium as a person would, and prints what it saw as JSON.

    python tests/html/drive.py BROWSER REPORT.html TERM [FOLDER_FOR_SCREENSHOTS]

TERM is searched for in the flame graph.
"""

import json
import pathlib
import sys

from playwright.sync_api import sync_playwright


def number(text):
    """The bytes in a title such as `12,288 B`."""
    return int(text.removesuffix(" B").replace(",", ""))


class Page:
    def __init__(self, browser, report, scheme):
        self.page = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900}).new_page()
        # Milliseconds; a machine that is busy with other tests takes far longer than Playwright's 30 s.
        self.page.set_default_timeout(600_000)
        self.console, self.requests = [], []
        self.page.on("console", lambda m: self.console.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.console.append(f"error: {e}"))
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.goto(report.as_uri())
        self.page.wait_for_selector("body[data-ready]")

    def live(self):
        """The table under the timeline: its heading, and bytes by site."""
        rows = self.page.locator("#live tbody tr[data-site]")
        names = rows.locator("td.where button").all_inner_texts()
        sizes = [number(t.get_attribute("title")) for t in rows.locator("td[title]:nth-child(4)").all()]
        return {
            "heading": self.page.locator("#live h3").inner_text(),
            "total": number(self.page.locator("#live .tools [title$=' B']").get_attribute("title")),
            "rows": list(zip(names, sizes)),
        }

    def flame(self):
        return {
            "total": number(self.page.locator("#flame-total").get_attribute("title") or "0 B"),
            "frames": self.page.locator(".icicle .frame").count(),
            "found": self.page.locator("#found").inner_text(),
            "hits": self.page.locator(".icicle .frame.hit").count(),
        }


def main():
    program, report = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    term = sys.argv[3]
    shots = pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else None
    saw = {}
    with sync_playwright() as playwright:
        # No network at all: what is not in the file cannot come.
        arguments = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        light = Page(browser, report, "light")
        page = light.page
        saw["title"], saw["heading"] = page.title(), page.locator("h1").inner_text()
        saw["findings"] = page.locator(".finding").all_inner_texts()
        saw["sections"] = page.locator("main > section > h2").all_inner_texts()
        saw["licences"] = page.locator("footer pre").all_text_contents()
        saw["live"] = light.live()

        # A click in the middle of the chart chooses another step; keys go on from there.
        chart = page.locator(".u-over")
        if chart.count():
            chart.scroll_into_view_if_needed()
            chart.click(position={"x": chart.bounding_box()["width"] / 2, "y": 100})
            saw["clicked"] = light.live()
            plot = page.locator(".plot")
            plot.focus()
            saw["focused"] = plot.get_attribute("aria-valuetext")
            page.keyboard.press("ArrowRight")
            saw["right"] = plot.get_attribute("aria-valuetext")
            page.keyboard.press("Home")
            saw["home"] = light.live()
            saw["said"] = page.locator("#said").inner_text()
            page.locator("#compare").click()
            plot.focus()
            page.keyboard.press("End")
            saw["compared"] = page.locator("#live th").all_inner_texts()
            page.locator("#compare").click()
            page.keyboard.press("+")
        row = page.locator("#live td.where button").first
        row.click()
        saw["stack"] = page.locator("#live tr.stack li").all_inner_texts()

        # The flame graph: each kind of bytes, a search, a zoom by keys.
        saw["flame"] = {}
        for mode in ("live", "growth", "peak", "retained"):
            page.locator(f"#flame button[data-value={mode}]").click()
            saw["flame"][mode] = light.flame()
        page.locator("#flame button[data-value=all]").click()
        saw["flame"]["all frames"] = light.flame()
        page.locator("#flame button[data-value=own]").click()
        saw["flame"]["own"] = light.flame()
        saw["own frames"] = page.locator(".icicle .frame").all_inner_texts()
        page.locator("#flame-search").fill(term)
        saw["flame"]["search"] = light.flame()
        page.locator("#flame-search").fill("")
        page.locator(".icicle .frame").first.focus()
        page.keyboard.press("ArrowDown")
        saw["frame"] = page.evaluate("document.activeElement.getAttribute('aria-label')")
        page.keyboard.press("Enter")
        saw["zoomed"] = page.locator(".icicle .frame.above").count()
        page.keyboard.press("Escape")
        saw["zoomed out"] = page.locator(".icicle .frame.above").count()

        saw["segments"] = page.locator("#segments .strip canvas").count()
        if saw["segments"]:
            strip = page.locator("#segments .strip canvas").first
            strip.focus()
            page.keyboard.press("ArrowRight")
            saw["block"] = page.locator("#segment-told p").inner_text()
        # Whatever can be worked has a name to be called by.
        saw["nameless"] = page.evaluate(
            """[...document.querySelectorAll("button, input, select, [tabindex]")].filter(e =>
               !(e.getAttribute("aria-label") || e.textContent.trim() || e.closest("label"))).map(e => e.outerHTML)"""
        )
        saw["sideways"] = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        saw["paint_ms"] = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        dark = Page(browser, report, "dark")
        ground = "getComputedStyle(document.body).backgroundColor"
        saw["grounds"] = [page.evaluate(ground), dark.page.evaluate(ground)]
        if shots:
            fresh = Page(browser, report, "light")
            fresh.page.screenshot(path=shots / "light.png", full_page=True)
            dark.page.screenshot(path=shots / "dark.png", full_page=True)
        saw["console"], saw["requests"] = light.console + dark.console, light.requests + dark.requests
        browser.close()
    print(json.dumps(saw))


main()
