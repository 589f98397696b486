"""The state that all routes share: the served models, which `reload` replaces, API keys, metrics and the log."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from regard.server.keys import Keys
from regard.server.served import LOG, Models


class Service:
    """The served models with keys, metrics and log."""

    def __init__(
        self,
        folders: Sequence[str],
        *,
        device: str = "auto",
        engine: str = "auto",
        precision: str = "auto",
        keys: Path | None = None,
        log_texts: bool = False,
    ) -> None:
        self.log_texts = log_texts
        self.load_models = partial(Models.load, folders, device, engine, precision)
        self.keys_file = keys
        self.keys = Keys.load(keys) if keys else None
        self.models = self.load_models()
        self.stopping = False
        self.reloading = asyncio.Lock()
        self.registry = CollectorRegistry()
        self.requests = Counter("regard_requests", "Requests.", ["path", "status"], registry=self.registry)
        self.seconds = Histogram("regard_request_seconds", "Time of a request.", ["path"], registry=self.registry)
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The metrics of the models, for prometheus_client."""
        waiting = GaugeMetricFamily("regard_waiting_texts", "Texts that wait for a model.", labels=["model"])
        counted = {
            name: CounterMetricFamily(f"regard_{name}", text, labels=["model"])
            for name, text in (
                ("texts", "Texts that a model computed."),
                ("batches", "Batches that were computed."),
                ("cached", "Texts that were answered from the cache."),
            )
        }
        for model in self.models.served:
            if model.worker is not None:
                waiting.add_metric([model.name], len(model.worker.waiting))
                for name, number in model.worker.statistics._asdict().items():
                    counted[name].add_metric([model.name], number)
        yield waiting
        yield from counted.values()

    async def reload(self) -> None:
        """Reload keys and folders; waiting requests are finished by the models that they were sent to."""
        async with self.reloading:
            try:
                keys = Keys.load(self.keys_file) if self.keys_file else None
                models = await asyncio.to_thread(self.load_models)
            except Exception as error:  # the loaded models stay
                LOG.error(json.dumps({"event": "reload", "error": str(error)}))
                return
            before, self.models, self.keys = self.models, models, keys  # no route is between finding and using a model
            loaded = [model.name for model in models.served]
            LOG.info(json.dumps({"event": "reload", "models": loaded, "failed": models.failed}))
            await asyncio.to_thread(before.close)

    def record(self, method: str, path: str, status: int, start: float, texts: Sequence[str]) -> None:
        """Count and log a request; texts are logged only with `log_texts`."""
        seconds = time.perf_counter() - start
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)
        if not LOG.isEnabledFor(logging.INFO):
            return
        entry: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "method": method,
            "path": path,
            "status": status,
            "ms": round(1000 * seconds, 1),
        }
        if texts:
            entry |= {"texts": len(texts), "characters": sum(map(len, texts))}
            entry |= {"q": list(texts)} if self.log_texts else {}
        LOG.info(json.dumps(entry, ensure_ascii=False))

    def close(self) -> None:
        """Refuse new requests and finish the waiting ones."""
        self.stopping = True
        self.models.close()
