"""Small models in folders, and a server with them."""

import threading
from contextlib import contextmanager
from functools import cache
from urllib.parse import urlsplit

import pytest
import torch
from fastapi.testclient import TestClient

from regard.model import Model, load
from regard.models.config import build, config_from_dict
from regard.server.app import bind, make_app
from regard.server.catalog import Catalog
from regard.server.connections import make_server
from regard.server.service import Service
from regard.text.tokenizer_training import train_tokenizer

TEXTS = ["the dog is sleeping in the garden .", "der hund schläft im garten ."] * 2
SIZES = {"d_model": 16, "n_heads": 2, "d_ff": 24}
FAMILIES = {
    "transformer": ({**SIZES, "n_encoder_layers": 2, "n_decoder_layers": 1}, "translation"),
    "seq2seq": ({"d_model": 16}, "translation"),
    "encoder": ({**SIZES, "n_layers": 2}, "masked"),
    "decoder": ({**SIZES, "n_layers": 1, "positions": "rotary"}, "language"),
    "vision": (
        {**SIZES, "n_layers": 1, "image_size": 8, "patch_size": 4, "n_classes": 3},
        "classification",
    ),
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """One model folder of each family, by name."""
    tokenizer = train_tokenizer(TEXTS, vocab_size=80, min_frequency=1)
    root = tmp_path_factory.mktemp("models")
    for name, (settings, task) in FAMILIES.items():
        torch.manual_seed(14)  # the translator ends its answers with this seed
        reads_text = name != "vision"
        more = {"n_vocab": len(tokenizer)} if reads_text else {}
        model = build(config_from_dict({"family": name, **settings, **more})).eval()
        for weight in (one for one in model.parameters() if one.dim() > 1):
            torch.nn.init.normal_(weight, std=0.4)
        kinds = {"tokenizer": tokenizer} if reads_text else {"labels": ("cat", "dog", "horse")}
        Model(module=model, task=task, **kinds).save(root / name)
    return {name: root / name for name in FAMILIES}


@pytest.fixture(scope="session")
def model(folders):
    """The translator in Python."""
    return load(folders["transformer"])


@pytest.fixture(scope="session")
def service(folders):
    service = Service(Catalog(folders.values()))
    yield service
    service.close()


@pytest.fixture(scope="session")
def client(service):
    app = make_app(service, version="1.2.3")
    # not used as a context manager, which would close the shared service
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.fixture(scope="session")
def address(service):
    """The address of a server with these models, for a browser."""
    with serving(make_app(service)) as address:
        yield address


@pytest.fixture
def page(browser, address):
    with window(browser, address) as page:
        yield page


@pytest.fixture(scope="session")
def trace(client):
    """Trace with the server and return the description; errors fail the test."""

    def post(model="transformer", text="the dog is sleeping", **more):
        response = client.post("/api/trace", json={"model": model, "text": text, **more})
        assert response.status_code == 200, response.text
        return response.json()

    return post


@contextmanager
def running(app):
    """Serve an application in a thread and yield the server and its port."""
    bound = bind("127.0.0.1", 0)
    server = make_server(app, lifespan="off")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        yield server, bound.getsockname()[1]
    finally:  # a thread that goes on would keep pytest from ending
        server.should_exit = True
        thread.join()


@cache
def visitor(browser):
    """Return the context of all windows: it keeps files that another one would load again."""
    return browser.new_context(viewport={"width": 1280, "height": 860}, locale="en-GB")


@contextmanager
def serving(app):
    """Serve an application in a thread and yield its address."""
    with running(app) as (_, port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def window(browser, address):
    """Open a browser window; its page must log nothing and request nothing from elsewhere."""
    context = visitor(browser)
    page, messages, hosts = context.new_page(), [], set()
    page.set_default_timeout(60_000)  # for a busy machine
    origin = {"origin": address, "storageTypes": "local_storage"}
    context.new_cdp_session(page).send("Storage.clearDataForOrigin", origin)
    page.on("console", lambda m: messages.append(m.text) if m.type != "log" else None)
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    try:
        yield page
    finally:
        page.close()
    assert messages == []
    assert hosts == {urlsplit(address).netloc}
