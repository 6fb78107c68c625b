"""The endpoints: what a request asks of the models, for the visitor who sends it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from PIL import Image
from starlette.requests import Request
from starlette.responses import Response

from classnorm.errors import ClassNormError
from classnorm.scoring import Scorer
from classnorm.serve.batching import Batcher
from classnorm.serve.counters import Counters
from classnorm.serve.messages import Answer, RequestError, Sent, read_document, read_sent, share, whole_number
from classnorm.serve.models import Rows, Served
from classnorm.serve.projection import Projection
from classnorm.serve.sessions import Session, Sessions, UserExamples, export_model, new_key, save_model
from classnorm.serve.settings import ServeSettings

COOKIE = "classnorm_session"
HEADER = "x-classnorm-session"
_THREADS = 2  # for pictures, changes and explanations; forward passes have their own
_DEFAULT_TOP = 3

T = TypeVar("T")


class Api:
    """The endpoints of one worker."""

    def __init__(self, models: Mapping[str, Served], settings: ServeSettings, counters: Counters) -> None:
        self.models, self.settings, self.limits = models, settings, settings.limits
        self.first = next(iter(models.values()))
        sizes = [8 * len(s.class_names) * (s.d_a + s.d_z) for s in (served.scorer for served in models.values())]
        self.sessions = Sessions(settings.state / "sessions", settings.limits, sum(sizes))
        self._batcher = Batcher(counters)
        self._threads = ThreadPoolExecutor(_THREADS, "work")
        self._exports = asyncio.Lock()
        self._maps: dict[str, Projection] = {}

    def close(self) -> None:
        self._batcher.close()
        self._threads.shutdown(wait=True)

    async def model(self, request: Request) -> Response:
        models = await self._in_thread(lambda: [served.about() for served in self.models.values()])
        saving = self.settings.save_folder is not None
        limits = {name: getattr(self.limits, name) for name in _SHOWN_LIMITS}
        return Answer({"models": models, "saving": saving, "limits": limits})

    async def predict(self, request: Request) -> Response:
        sent, session = await read_sent(request, self.limits), self._session(request)
        k = whole_number(sent.fields.get("top", _DEFAULT_TOP), "top", self.limits.top)
        reject = share(sent.fields.get("reject"), "reject")
        chosen = self._chosen(sent.fields.get("model"))
        answers: list[dict[str, Any]] = []
        encoded: dict[str, Rows] = {}  # by models that see pictures alike
        for served in chosen:
            try:
                answers.append(await self._predicted(served, session, sent, k, reject, encoded))
            except RequestError as error:
                if not answers:
                    raise
                answers.append({"model": served.name, "error": error.message})
        return Answer(answers[0] | ({"models": answers} if len(chosen) > 1 else {}))

    async def _predicted(
        self, served: Served, session: Session, sent: Sent, k: int, reject: float | None, encoded: dict[str, Rows]
    ) -> dict[str, Any]:
        scorer, rows = await self._scorer_and_rows(served, session, sent, encoded)
        can_tell = reject is not None and scorer.validation.rejection is not None
        answers = await self._batcher.answers(scorer, rows.features, k, can_tell)
        known: list[bool | None] = [None] * len(rows.features)
        if can_tell and reject is not None and answers.novelty is not None:
            known = (answers.novelty <= scorer.novelty_threshold(reject)).tolist()
        predictions = [
            [{"class": each.name, "probability": round(each.probability, 6), "kind": each.kind} for each in best]
            for best in answers.named(scorer.class_names, _kinds(served, scorer))
        ]
        return {
            "model": served.name,
            "predictions": rows.spread(predictions),
            "known": rows.spread(known),
            **({"errors": [error or None for error in rows.errors]} if any(rows.errors) else {}),
        }

    async def _scorer_and_rows(
        self, served: Served, session: Session, sent: Sent, encoded: dict[str, Rows] | None = None
    ) -> tuple[Scorer, Rows]:
        if sent.features is not None and session is self.sessions.nobody:
            return served.scorer, served.rows(sent, self.limits)  # at once: no need to change threads
        encoded = {} if encoded is None or sent.features is not None else encoded
        if served.encoder_key not in encoded:
            encoded[served.encoder_key] = await self._in_thread(served.rows, sent, self.limits)
        return await self._in_thread(session.scorer, served), encoded[served.encoder_key]

    async def list_classes(self, request: Request) -> Response:
        served, session = self._one(request.query_params.get("model")), self._session(request)
        scorer = await self._in_thread(session.scorer, served)
        additions, kinds = session.of(served), _kinds(served, scorer)
        name = request.query_params.get("name")
        if name is not None and name not in scorer.classes.position:
            raise RequestError(404, f"no class {name[:100]!r}")
        classes: list[dict[str, Any]] = [
            {
                "class": class_name,
                "kind": kinds[i],
                "examples": additions.count(class_name),
                **served.letter(class_name, scorer.descriptors[i]),
            }
            for i, class_name in enumerate(scorer.class_names)
            if name in (None, class_name)
        ]
        if name is not None:
            classes[0]["descriptor"] = scorer.descriptors[scorer.classes.position[name]].tolist()
        given = [{"id": each.number, "class": each.name, "examples": len(each.rows)} for each in additions.examples]
        return Answer({"model": served.name, "classes": classes, "gifts": given})

    async def add_class(self, request: Request) -> Response:
        document = await read_document(request)
        name = self._name(document.get("name"))
        text = document.get("text")
        if isinstance(text, str) and len(text) > self.limits.text_length:
            raise RequestError(413, f"text has more than {self.limits.text_length} characters")
        chosen = self._chosen(document.get("model", "all"))

        session = self._session(request)

        def vector(served: Served) -> Any:
            scorer = session.scorer(served)
            if name in scorer.classes.position:
                raise _taken()
            vector = served.descriptor(document)
            _check_finite(scorer.add_classes({name: vector}, "your class"))
            return vector

        vectors = await self._in_thread(_where_possible, chosen, vector)

        def change(session: Session) -> Session:
            for served, vector in vectors:
                classes = session.of(served).classes
                if name in classes:
                    raise _taken()
                session = session.with_additions(served, classes={**classes, name: vector})
            return session

        key, _ = await self._changed(request, change)
        return self._answer(request, key, {"class": name, "kind": "yours", "model": vectors[0][0].name}, 201)

    async def remove_class(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        chosen = self._chosen(request.query_params.get("model", "all"))
        session = self._session(request)
        if not any(name in session.of(served).classes for served in chosen):
            known = any(name in served.scorer.class_names for served in chosen)
            raise RequestError(
                403 if known else 404,
                "classes of the model cannot be removed" if known else f"you have no class {name[:100]!r}",
            )

        def change(session: Session) -> Session:
            for served in chosen:
                additions = session.of(served)
                classes = {key: vector for key, vector in additions.classes.items() if key != name}
                examples = tuple(given for given in additions.examples if given.name != name)
                session = session.with_additions(served, classes=classes, examples=examples)
            return session

        key, _ = await self._changed(request, change)
        return self._answer(request, key, {"removed": name})

    async def add_examples(self, request: Request) -> Response:
        sent, session = await read_sent(request, self.limits), self._session(request)
        name = sent.text("class")
        chosen = self._chosen(sent.fields.get("model", "all"))

        def examples(served: Served) -> Any:
            scorer = session.scorer(served)
            if name not in scorer.classes.position:
                raise RequestError(404, f"no class {name[:100]!r}")
            features = served.rows(sent, self.limits).features.astype(np.float32)
            _check_finite(scorer.add_examples(features, [name] * len(features)))
            return features

        rows = await self._in_thread(_where_possible, chosen, examples)

        def change(session: Session) -> Session:
            number = 1 + max(
                (given.number for part in session.additions.values() for given in part.examples), default=0
            )
            for served, features in rows:
                examples = (*session.of(served).examples, UserExamples(number, name, features))
                session = session.with_additions(served, examples=examples)
            return session

        key, session = await self._changed(request, change)
        served, features = rows[0]
        additions = session.of(served)
        answer = {"class": name, "id": additions.examples[-1].number, "added": len(features)}
        return self._answer(request, key, answer | {"examples": additions.count(name)}, 201)

    async def remove_examples(self, request: Request) -> Response:
        query = request.query_params
        name = query.get("class")
        number = whole_number(query["id"], "id", 1 << 30) if "id" in query else None
        if (name is None) == (number is None):
            raise RequestError(400, "say which examples: class or id")
        removed = 0

        def change(session: Session) -> Session:
            nonlocal removed
            for served in self._chosen(query.get("model", "all")):
                before = session.of(served)
                kept = tuple(given for given in before.examples if name != given.name and number != given.number)
                session = session.with_additions(served, examples=kept)
                removed = max(removed, before.count() - session.of(served).count())
            if not removed:
                raise RequestError(404, "there are no such examples of yours")
            return session

        key, _ = await self._changed(request, change)
        return self._answer(request, key, {"removed": removed})

    async def explain(self, request: Request) -> Response:
        sent, session = await read_sent(request, self.limits), self._session(request)
        top = whole_number(sent.fields.get("top", 10), "top", self.limits.top)
        served = self._one(sent.fields.get("model"))
        scorer, rows = await self._scorer_and_rows(served, session, sent)
        if len(rows.features) > self.limits.files:
            raise RequestError(413, f"explanations of at most {self.limits.files} rows at a time")
        explanations = await self._in_thread(lambda: scorer.explain(rows.features, top=top))
        return Answer({"model": served.name, "explanations": rows.spread(explanations)})

    async def map(self, request: Request) -> Response:
        session = self._session(request)
        sent = await read_sent(request, self.limits) if request.method == "POST" else None
        fields: Mapping[str, Any] = request.query_params if sent is None else sent.fields
        served = self._one(fields.get("model"))
        scorer = await self._in_thread(session.scorer, served)
        places = await self._in_thread(self._places, served, scorer)
        answer: dict[str, Any] = {
            "model": served.name,
            "classes": [
                {"class": name, "kind": kind, "x": float(x), "y": float(y)}
                for name, kind, (x, y) in zip(scorer.class_names, _kinds(served, scorer), places, strict=True)
            ],
        }
        if sent is not None:
            rows = await self._in_thread(served.rows, sent, self.limits)
            answers = await self._batcher.answers(scorer, rows.features, self.limits.top)
            points = Projection.points(places, answers.top).tolist()
            answer["points"] = rows.spread([{"x": x, "y": y} for x, y in points])
        return Answer(answer)

    def _places(self, served: Served, scorer: Scorer) -> Any:
        if served.name not in self._maps:
            self._maps[served.name] = Projection.of(served.scorer.prototypes())
        return self._maps[served.name](scorer.prototypes())

    async def thumbnail(self, request: Request) -> Response:
        served, name = self._one(request.query_params.get("model")), request.query_params.get("class", "")
        pixels = await self._in_thread(served.thumbnail, name)
        if pixels is None:
            raise RequestError(404, "there is no picture of this class")
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        headers = {"cache-control": "private, max-age=3600"}
        return Response(file.getvalue(), media_type="image/png", headers=headers)

    async def forget(self, request: Request) -> Response:
        key = self._key(request)
        if key is not None:
            await self._in_thread(self.sessions.forget, key)
        response = Answer({"forgotten": key is not None})
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    async def save(self, request: Request) -> Response:
        document = await read_document(request)
        served, session = self._one(document.get("model")), self._session(request)
        name = await self._in_thread(save_model, served, session, document.get("name"), self.settings)
        return Answer({"saved": name}, 201)

    async def export(self, request: Request) -> Response:
        served, session = self._one(request.query_params.get("model")), self._session(request)
        if self._exports.locked():
            raise RequestError(429, "another export is running; try again", {"retry-after": "5"})
        async with self._exports:
            content = await self._in_thread(export_model, served, session)
        headers = {"content-disposition": 'attachment; filename="model.onnx"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    def _chosen(self, name: Any) -> list[Served]:
        """The models that a request is for: by default the first one."""
        if name is None:
            return [self.first]
        if name == "all":
            return list(self.models.values())
        if not isinstance(name, str) or name not in self.models:
            raise RequestError(404, f"no model {str(name)[:100]!r}; GET /model lists them")
        return [self.models[name]]

    def _one(self, name: Any) -> Served:
        return self._chosen(name)[0]

    def _name(self, name: Any) -> str:
        """A name of a class that can be shown."""
        if not isinstance(name, str) or not name.strip():
            raise RequestError(400, "name must be the name of the class")
        if len(name) > self.limits.name_length:
            raise RequestError(400, f"name has more than {self.limits.name_length} characters")
        if not name.isprintable() or name != name.strip():
            raise RequestError(400, "name must have visible characters only, and no spaces around it")
        return name

    def _key(self, request: Request) -> str | None:
        given = request.headers.get(HEADER) or request.cookies.get(COOKIE)
        return given if given is not None and self.sessions.is_key(given) else None

    def _session(self, request: Request) -> Session:
        return self.sessions.get(self._key(request))

    async def _changed(self, request: Request, change: Callable[[Session], Session]) -> tuple[str, Session]:
        key = self._key(request) or new_key()
        return key, await self._in_thread(self.sessions.change, key, change)

    def _answer(self, request: Request, key: str, document: dict[str, Any], status: int = 200) -> Response:
        """An answer that tells a new visitor who they are."""
        response = Answer(document, status, headers={HEADER: key})
        if request.headers.get(HEADER) is None:
            age = round(86400 * self.limits.session_days)
            secure = request.headers.get("origin", request.url.scheme).startswith("https")  # also behind a proxy
            response.set_cookie(COOKIE, key, max_age=age, httponly=True, samesite="strict", secure=secure)
        return response

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*arguments))


_SHOWN_LIMITS = ("body_mb", "megapixels", "files", "rows", "top", "classes", "examples", "name_length", "text_length")


def _taken() -> RequestError:
    return RequestError(409, "there is a class of this name already; choose another one")


def _where_possible(chosen: Sequence[Served], function: Callable[[Served], T]) -> list[tuple[Served, T]]:
    """The results for the models that a request fits; what fits one need not fit another, but it must fit some."""
    results: list[tuple[Served, T]] = []
    problems: list[Exception] = []
    for served in chosen:
        try:
            results.append((served, function(served)))
        except (RequestError, ClassNormError) as error:
            problems.append(error)
    if not results:
        raise problems[0]
    return results


def _check_finite(scorer: Scorer) -> None:
    """Numbers that are finite may be too large to compute with."""
    with np.errstate(all="ignore"):
        if not np.isfinite(scorer.prototypes()).all():
            raise RequestError(400, "the numbers are too large to compute with")


def _kinds(served: Served, scorer: Scorer) -> Sequence[str]:
    """What each class is: ``seen``, ``unseen``, or ``yours``, added by the visitor."""
    known = served.scorer.classes.kinds
    return (*known, *["yours"] * (len(scorer.class_names) - len(known)))
