"""Trace every family with edits on a device that is not the CPU.

See tests/models/device_cases.py for the device "fake" and why this is a script.
"""

from functools import partial

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import regard
from regard.attention.multi_head import KeyValueCache, MultiHeadAttention
from regard.trace.edit import EditTarget
from regard.trace.recorder import Recorder
from tests.models import device_cases as models
from tests.models.device_cases import DEVICE, ids, made


def edits_of(site):
    return [
        *(regard.ablate(site, head=0), regard.ablate(site, to="mean"), regard.unscaled(site)),
        *(regard.forbid(site, query=1, key=0), regard.allow(site, key=1, head=0)),
        *(regard.temperature(site, 0.5), regard.set_scores(site, 1.0, head=0)),
        *(regard.set_weights(site, 0.5, key=1), regard.set_value(f"{site}.value", 1.0)),
        regard.set_value(f"{site}.query", lambda query: query * 2),
    ]


def tensors_of(trace):
    yield from trace.values.values()
    for site in trace.sites.values():
        yield from (site.query, site.key, site.value, site.sums, *site.changed.values())


@torch.no_grad()
def run(settings, site="*.self", inputs=1):
    model = made({**settings}).eval()
    given = [torch.zeros(1, 3, 8, 8, device=DEVICE)] if inputs == 0 else [ids(1, 4)] * inputs
    edits = [e for e in edits_of(site) if inputs < 2 or "mean" not in repr(e)]
    with regard.watch(edits=edits) as trace:
        model(*given)
    yield from tensors_of(trace)


@torch.no_grad()
def run_with_cache():
    with torch.device(DEVICE):
        layer, cache = MultiHeadAttention(8, 2, path="self"), KeyValueCache()
    x = torch.zeros(2, 3, 8, device=DEVICE)
    edits = [regard.forbid("self", query=1, key=0), regard.ablate("self", head=1)]
    with regard.watch(edits=edits) as trace:
        for i in range(3):
            layer(x[:, i : i + 1], cache=cache, allowed=regard.causal(offset=i))
    yield from tensors_of(trace)


def temperature_of_a_head():
    # the softmax would read its values, which fake tensors do not have
    target = EditTarget("self", n_heads=2, device=torch.device(DEVICE))
    yield regard.temperature("self", 0.5, head=1).apply(1.0, target)


CASES = {
    "transformer": partial(run, models.TRANSFORMER, inputs=2),
    "seq2seq": partial(run, models.SEQ2SEQ, site="*.cross", inputs=2),
    "encoder": partial(run, models.ENCODER),
    "decoder": partial(run, models.DECODER),
    "vision": partial(run, {**models.VISION, **models.SIZES}, inputs=0),
    "cache": run_with_cache,
    "temperature of a head": temperature_of_a_head,
}

if __name__ == "__main__":
    _setup_privateuseone_for_python_backend(DEVICE)
    torch._C._set_only_lift_cpu_tensors(True)
    Recorder._check_finite = lambda *_: None  # fake tensors have no values to check
    for name, case in CASES.items():
        with FakeTensorMode():
            devices = {str(result.device.type) for result in case()}
        assert devices == {DEVICE}, (name, devices)
