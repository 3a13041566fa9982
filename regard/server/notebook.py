"""A trace in a notebook: the explorer as a widget, and as a page in a frame where there is none.

A notebook shows the richest form that it can. With anywidget that is the widget, which lies in
the notebook like any other output and whose `state` Python can read and set; without it, or where
only the text of a notebook is left, it is the page that `Trace.html` writes, in a frame.
"""

import sys
from functools import cache
from html import escape
from importlib.util import find_spec
from typing import Any

from regard.server.html_export import around, as_data, joined_script, joined_style
from regard.trace.trace import Trace

HEIGHT = 760
"""Pixels that the explorer takes in a notebook."""


def mimebundle(trace: Trace) -> dict[str, Any]:
    """The forms in which a notebook can show a trace, by media type."""
    plain = {"text/plain": repr(trace)}
    if not trace.sites or _in_terminal():
        return plain
    data = as_data(trace)
    return {**plain, "text/html": frame(around(data)), **_widget_bundle(data)}


def frame(page: str) -> str:
    """A page inside another one."""
    return (
        f'<iframe srcdoc="{escape(page)}" title="regard" '
        f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
    )


def widget(data: str) -> Any:
    """The explorer with a trace's data; its `state` is what an address would hold."""
    return _widget_class()(data=data)


@cache
def _widget_class() -> Any:
    import anywidget
    from traitlets import Unicode

    class Explorer(anywidget.AnyWidget):
        """A trace, to look at and change in a notebook."""

        _esm = f"{joined_script('js/widget.js')}\nexport default {{ render: $widget.render }};\n"
        _css = joined_style()
        data = Unicode().tag(sync=True)
        state = Unicode().tag(sync=True)

    return Explorer


def _widget_bundle(data: str) -> dict[str, Any]:
    if find_spec("anywidget") is None:
        return {}
    model = widget(data)._repr_mimebundle_()
    shown = model[0] if isinstance(model, tuple) else model
    return {kind: value for kind, value in shown.items() if not kind.startswith("text/")}


def _in_terminal() -> bool:
    """Whether an IPython without a notebook asks: it can show text only."""
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return bool(shell) and not hasattr(shell, "kernel")
