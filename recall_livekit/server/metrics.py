"""What an operator sees of a server: counts and times, without call ids, content or tenants."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Metrics"]

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The figures of one app, in a registry of its own: many apps may live in one process."""

    def __init__(self) -> None:
        """Have counted nothing."""
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "recall_requests",
            "Requests by route and status.",
            ["route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "recall_request_seconds",
            "How long answers took, by route; a stream counts until it begins.",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.problems = Counter(
            "recall_problems",
            "Errors told to clients, by type; those of single units too.",
            ["type"],
            registry=self.registry,
        )
        self.streams = Gauge(
            "recall_streams_open",
            "Streams that are open now, by kind: holder, waiter or listener.",
            ["kind"],
            registry=self.registry,
        )
        for kind in ("holder", "waiter", "listener"):
            self.streams.labels(kind)  # none is told as 0, not left out
        self.records = Counter(
            "recall_records_appended", "Records acknowledged as durable.", registry=self.registry
        )
        self.granted = Counter("recall_leases_granted", "Leases granted.", registry=self.registry)
        self.taken_over = Counter(
            "recall_leases_taken_over",
            "Leases granted while another writer's had not been given back.",
            registry=self.registry,
        )
        self.broken = Counter(
            "recall_streams_broken",
            "Streams of holders that broke.",
            registry=self.registry,
        )
        self.lapsed = Counter(
            "recall_leases_lapsed_by_stream",
            "Leases that ended because the holder's stream broke and did not come back.",
            registry=self.registry,
        )
        self.call_events = Counter(
            "recall_call_events",
            "What happened to leases, by event, whether anybody listened or not.",
            ["event"],
            registry=self.registry,
        )
        self.missed = Counter(
            "recall_events_missed",
            "Times that a listener was too slow, and was told that it missed some events.",
            registry=self.registry,
        )
        self.retired = Counter(
            "recall_calls_retired", "Calls erased by retention.", registry=self.registry
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self.registry)
