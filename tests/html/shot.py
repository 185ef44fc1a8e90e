"""Takes a picture of the upper part of a report in a headless Chromium.

    python tests/html/shot.py BROWSER REPORT.html OUT.png [HEIGHT]

It is written with a palette of 256 colours: small enough to be kept beside the text that shows it.
"""

import collections
import pathlib
import struct
import sys
import zlib

from playwright.sync_api import sync_playwright

WIDTH = 1180


def pixels(png):
    """The rows of an 8-bit RGB or RGBA picture, as a browser writes it: each a list of (red, green, blue)."""
    at, data = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        part = png[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colours = struct.unpack(">IIBB", part[:10])
            assert depth == 8 and colours in (2, 6)
            step = 3 if colours == 2 else 4
        elif kind == b"IDAT":
            data += part
        at += 12 + size
    data = zlib.decompress(data)
    rows, above, length = [], bytearray(width * step), width * step
    for y in range(height):
        start = y * (length + 1)
        row, how = bytearray(data[start + 1 : start + 1 + length]), data[start]
        for x in range(length if how else 0):
            left = row[x - step] if x >= step else 0
            up, corner = above[x], above[x - step] if x >= step else 0
            if how == 1:
                guess = left
            elif how == 2:
                guess = up
            elif how == 3:
                guess = (left + up) // 2
            else:
                guess = min((left, up, corner), key=lambda near: abs(left + up - corner - near))
            row[x] = (row[x] + guess) & 255
        rows.append([tuple(row[x : x + 3]) for x in range(0, length, step)])
        above = row
    return rows


def indexed(rows):
    """The same picture with the 256 colours that are most of it; the others are the nearest of them."""
    counts = collections.Counter(colour for row in rows for colour in row)
    palette = [colour for colour, _ in counts.most_common(256)]
    near = {colour: i for i, colour in enumerate(palette)}
    for colour in counts:
        if colour not in near:
            distance = lambda i: sum((a - b) ** 2 for a, b in zip(palette[i], colour))
            near[colour] = min(range(len(palette)), key=distance)

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    body = b"".join(b"\0" + bytes(near[colour] for colour in row) for row in rows)
    parts = [(b"IHDR", head), (b"PLTE", b"".join(map(bytes, palette))), (b"IDAT", zlib.compress(body, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def main():
    program, report, out = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3])
    height = int(sys.argv[4]) if len(sys.argv) > 4 else 1060
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        page = browser.new_context(color_scheme="light", viewport={"width": WIDTH, "height": height}).new_page()
        page.goto(report.as_uri())
        page.wait_for_selector("body[data-ready]")
        taken = page.screenshot()
        browser.close()
    out.write_bytes(indexed(pixels(taken)))


main()
