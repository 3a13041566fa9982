"""Colors of figures: roles, series, and perceptually even ramps."""

from functools import lru_cache

import numpy as np

INK, FAINT, HAIRLINE = "#222222", "#666666", "#DDDDDD"  # text, secondary text, guide lines
MASKED = "#F2F2F2"  # background of masked cells
ROLES = {
    "query": "#0072B2",
    "key": "#E69F00",
    "value": "#009E73",
    "weight": "#5B4B8A",
    "positive": "#0072B2",
    "negative": "#D55E00",
    "masked": "#999999",
}
SERIES = ("#0072B2", "#D55E00", "#009E73", "#5B4B8A", "#E69F00", "#56B4E9", "#CC79A7", "#222222")
"""Colors of the series of a chart, distinguishable with color blindness (Okabe and Ito)."""
_DARKEST = {"weight": "#2A1E52", "positive": "#00395A", "negative": "#6B2F00"}
_MIDDLE = 0.6  # where a ramp reaches its role's own color
_RGB_TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_LMS_TO_OKLAB = np.array(
    [
        [0.2104542553, 0.793617785, -0.0040720468],
        [1.9779984951, -2.428592205, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.808675766],
    ]
)


def shade(value: float, role: str = "weight") -> str:
    """Return the color of a value from 0 (white) to 1 (the role's darkest tone), as #RRGGBB."""
    return to_hex(color_ramp(role)[round(255 * min(1.0, max(0.0, value)))])


def shade_array(values: np.ndarray, role: str = "weight") -> np.ndarray:
    """Return the colors of an array of values from 0 to 1, with a last axis of 3 bytes."""
    return color_ramp(role)[np.rint(255 * np.clip(np.nan_to_num(values), 0, 1)).astype(int)]


def shade_signed(values: np.ndarray, largest: float) -> np.ndarray:
    """Return the colors of values from -largest (negative) over 0 (white) to largest (positive)."""
    shares = np.abs(values) / max(largest, 1e-12)
    below = (values < 0)[..., None]
    return np.where(below, shade_array(shares, "negative"), shade_array(shares, "positive"))


def darken(color: str) -> str:
    """Return a darker tone of a color, with enough contrast for text on white."""
    return to_hex(from_oklab(_read(color) * (0.8, 1, 1)))


@lru_cache
def color_ramp(role: str) -> np.ndarray:
    """Return 256 perceptually even colors (OKLab) from white to the role's darkest tone."""
    white, middle, dark = (_read(code) for code in ("#FFFFFF", ROLES[role], _DARKEST[role]))
    share = np.linspace(0, 1, 256)[:, None]
    light_half = white + (middle - white) * share / _MIDDLE
    dark_half = middle + (dark - middle) * (share - _MIDDLE) / (1 - _MIDDLE)
    return from_oklab(np.where(share < _MIDDLE, light_half, dark_half))


def _read(code: str) -> np.ndarray:
    return to_oklab(np.array([int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)]))


def to_oklab(rgb: np.ndarray) -> np.ndarray:
    """Return colors with parts from 0 to 1 in OKLab: lightness, green to red, blue to yellow."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return np.cbrt(linear @ _RGB_TO_LMS.T) @ _LMS_TO_OKLAB.T


def from_oklab(lab: np.ndarray) -> np.ndarray:
    """Return colors of OKLab as bytes."""
    lms = (lab @ np.linalg.inv(_LMS_TO_OKLAB).T) ** 3
    linear = np.clip(lms @ np.linalg.inv(_RGB_TO_LMS).T, 0, 1)
    x = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.rint(255 * x).astype(np.uint8)


def to_hex(rgb: np.ndarray) -> str:
    """Return three bytes as #RRGGBB."""
    return "#{:02X}{:02X}{:02X}".format(*rgb.tolist())
