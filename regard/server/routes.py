"""Routes for models, uploads, texts and training runs."""

from typing import Any, Unpack

from fastapi import APIRouter, Request, Response
from PIL import Image
from pydantic import BaseModel, Field, NonNegativeInt

from regard.analysis.worked_example import DEFAULT
from regard.generation.search import SearchKeywords
from regard.generation.translator import Translation
from regard.model import Model
from regard.server.catalog import ExampleInfo, ModelInfo, ReplayInfo
from regard.server.error_codes import ERROR_CODES, ErrorCode
from regard.server.jobs import EVENTS, Job
from regard.server.model_inputs import ApiRequest, Beam, Text, read_image
from regard.server.service import Context
from regard.server.settings import LIMITS, Limits
from regard.trace.edits import edit_schema

router = APIRouter(prefix="/api")
_REVALIDATE = {"cache-control": "no-cache"}


class ModelList(BaseModel):
    """All models, the first to open first, and the worked example that needs none."""

    models: list[ModelInfo]
    worked: dict[str, Any]  # matrices of the worked example
    example: str  # trace id of the worked example
    runs: list[str]  # names of the training runs that can be replayed
    limits: Limits


@router.get("/models")
def models(context: Context, response: Response) -> ModelList:
    """List the models, training runs and limits of the server."""
    response.headers.update(_REVALIDATE)
    service = context.service
    return ModelList(
        models=[entry.describe() for entry in service.catalog.entries.values()],
        worked=DEFAULT,
        example=service.worked_example().id,
        runs=list(service.runs.runs),
        limits=LIMITS,
    )


@router.get("/errors")
def errors() -> dict[str, ErrorCode]:
    """Return the status and message template of every error code."""
    return ERROR_CODES


@router.get("/edits/schema")
def edits_schema() -> dict[str, Any]:
    """Return the JSON schema of edits."""
    return edit_schema()


class ExampleList(BaseModel):
    """Inputs to try on a model."""

    examples: list[ExampleInfo]


@router.get("/examples", response_model_exclude_unset=True)
def examples(model: str, context: Context, response: Response) -> ExampleList:
    """List inputs to try on a model."""
    response.headers.update(_REVALIDATE)
    return ExampleList(examples=context.service.catalog[model].examples())


@router.get("/examples/{model}/{number}", response_class=Response)
def example_image(model: str, number: NonNegativeInt, context: Context) -> Response:
    """Return an example image of a model; its bytes say which format it has."""
    data = context.service.catalog[model].image(number)
    kind = Image.MIME[read_image(data).format or "PNG"]
    return Response(data, media_type=kind, headers=_REVALIDATE)


class Upload(BaseModel):
    """Name of an uploaded image for other requests."""

    image: str


_IMAGE_BODY = {"content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}}


@router.post("/images", response_model=Upload, openapi_extra={"requestBody": _IMAGE_BODY})
async def upload_image(request: Request, context: Context) -> Response:
    """Store an image file, sent as the request body."""
    data = await request.body()

    def work(job: Job) -> Upload:
        read_image(data)
        return Upload(image=context.service.upload(data))

    return await context.read(work)


class TranslationRequest(ApiRequest):
    """Translate texts."""

    model: str
    texts: list[Text] = Field(max_length=LIMITS.texts)
    beam: Beam = 4
    n_best: int = Field(default=1, ge=1)  # translations for each text


class TranslationInfo(BaseModel, from_attributes=True):
    """A translation of one text, and the next best ones."""

    text: str
    score: float
    tokens: list[str]
    source_tokens: list[str]
    alternatives: list["TranslationInfo"]


class TranslationList(BaseModel):
    """Translations in the order of the texts."""

    translations: list[TranslationInfo]


@router.post("/translate", response_model=TranslationList, responses=EVENTS)
async def translate(body: TranslationRequest, context: Context) -> Response:
    """Translate texts."""

    def work(job: Job) -> TranslationList:
        job.report("loading", 0)
        model = context.service.catalog[body.model].model()
        done = translate_texts(job, model, body.texts, beam=body.beam, n_best=body.n_best)
        return TranslationList.model_validate({"translations": done})

    return await context.compute(body.model, work)


def translate_texts(
    job: Job, model: Model, texts: list[str], **search: Unpack[SearchKeywords]
) -> list[Translation]:
    """Translate texts in batches, between which the job reports its progress."""
    done: list[Translation] = []
    for first in range(0, len(texts), 16):
        job.report("writing", first, len(texts))
        done += model.translate(texts[first : first + 16], **search)
    return done


class GenerationRequest(ApiRequest):
    """Continue a text, token by token."""

    model: str
    text: Text
    max_tokens: int = Field(default=60, ge=1, le=LIMITS.generated_tokens)
    temperature: float = 1.0  # 0 always takes the most probable token
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0


class GenerationAnswer(BaseModel):
    """A text that a model generated, and the engine that computed it."""

    text: str  # the prompt and its continuation
    written: str
    log_prob: float
    finished: bool  # True if the model ended the text itself
    engine: str
    precision: str


@router.post("/generate", response_model=GenerationAnswer, responses=EVENTS)
async def generate(body: GenerationRequest, context: Context) -> Response:
    """Continue a text; progress events have the text so far."""

    def work(job: Job) -> GenerationAnswer:
        job.report("loading", 0)
        written: list[str] = []

        def on_text(text: str) -> None:
            written.append(text)
            job.report("writing", len(written), body.max_tokens, text="".join(written))

        model = context.service.catalog[body.model].model()
        options = body.model_dump(exclude={"model", "text"}, exclude_none=True)
        return GenerationAnswer(**model.generate(body.text, on_text=on_text, **options).to_dict())

    return await context.compute(body.model, work)


class RunList(BaseModel):
    """All training runs of the server."""

    runs: list[ReplayInfo]


@router.get("/runs")
def runs(context: Context) -> RunList:
    """List training runs and their checkpoints so far."""
    entries = context.service.catalog.entries.values()
    return RunList(runs=[run.describe(entries) for run in context.service.runs.runs.values()])
