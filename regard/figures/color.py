"""Colors by role, safe for color-blind readers, and scales that are even to the eye."""

from functools import lru_cache

import numpy as np

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
"""For lines of one picture; they also differ in their labels."""
_DEEP = {"weight": "#2A1E52", "positive": "#00395A", "negative": "#6B2F00"}
_MIDDLE = 0.6

_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.793617785, -0.0040720468],
        [1.9779984951, -2.428592205, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.808675766],
    ]
)


def shade(share: float, role: str = "weight") -> str:
    """The color of a share from 0 (white) to 1 (the role's darkest tone), as #rrggbb."""
    red, green, blue = ramp(role)[round(255 * min(1.0, max(0.0, share)))].tolist()
    return f"#{red:02X}{green:02X}{blue:02X}"


def shades(table: np.ndarray, role: str = "weight") -> np.ndarray:
    """Colors of a whole table of shares: … × 3 bytes."""
    return ramp(role)[np.rint(255 * np.clip(np.nan_to_num(table), 0, 1)).astype(int)]


def signed(table: np.ndarray, largest: float) -> np.ndarray:
    """Colors of numbers from −largest (negative) over 0 (white) to largest (positive)."""
    shares = np.abs(table) / max(largest, 1e-12)
    below = (table < 0)[..., None]
    return np.where(below, shades(shares, "negative"), shades(shares, "positive"))


@lru_cache
def ramp(role: str) -> np.ndarray:
    """256 colors from white to the role's darkest tone, evenly spaced to the eye (OKLab)."""
    white, middle, deep = (_to_lab(code) for code in ("#FFFFFF", ROLES[role], _DEEP[role]))
    share = np.linspace(0, 1, 256)[:, None]
    light = white + (middle - white) * share / _MIDDLE
    dark = middle + (deep - middle) * (share - _MIDDLE) / (1 - _MIDDLE)
    return _from_lab(np.where(share < _MIDDLE, light, dark))


def _to_lab(code: str) -> np.ndarray:
    x = np.array([int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
    return _TO_LAB @ np.cbrt(_TO_CONES @ linear)


def _from_lab(lab: np.ndarray) -> np.ndarray:
    cones = (lab @ np.linalg.inv(_TO_LAB).T) ** 3
    linear = np.clip(cones @ np.linalg.inv(_TO_CONES).T, 0, 1)
    x = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.rint(255 * x).astype(np.uint8)
