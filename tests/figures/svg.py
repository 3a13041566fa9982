"""Reading figures back from their SVG text."""

import xml.etree.ElementTree as ET

from regard.figures.formats import Figure, to_svg

SVG = "{http://www.w3.org/2000/svg}"


def parse(figure):
    """Return the root element of a figure or drawing."""
    return ET.fromstring(figure.svg if isinstance(figure, Figure) else to_svg(figure))


def texts(figure):
    """Return every text of a figure."""
    return ["".join(text.itertext()) for text in parse(figure).iter(f"{SVG}text")]


def tooltips(figure, element):
    """Return elements that have a tooltip, by pairs of its text and the element."""
    found = parse(figure).iter(f"{SVG}{element}")
    return [
        (one.findtext(f"{SVG}title"), one) for one in found if one.find(f"{SVG}title") is not None
    ]


def weights_shown(figure, element):
    """Return the numbers at the end of tooltips, with their elements."""
    return [(float(text.rsplit(": ")[-1]), one) for text, one in tooltips(figure, element)]


def plotted(figure):
    """Return the points of each line of a plot in pixels, by name."""
    return {
        name: [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for name, line in tooltips(figure, "polyline")
    }


def tick_positions(figure, anchor):
    """Return (value, x, y) of every tick with this text anchor."""
    ticks = []
    for text in parse(figure).iter(f"{SVG}text"):
        number = (text.text or "").replace(",", "")
        if text.get("text-anchor") == anchor and number.replace(".", "").isdigit():
            ticks.append((float(number), float(text.get("x")), float(text.get("y"))))
    return ticks
