"""What an operator sees of a watcher: counts and times, without room names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from .counts import Counts
from .webhooks import OUTCOMES, Outcome

__all__ = ["WatcherMetrics"]

_NOW = {
    "acting": ("recall_watcher_acting", "1 if this watcher is the one that acts."),
    "rooms": ("recall_watcher_rooms", "Rooms that are watched."),
    "waiting": ("recall_watcher_calls_waiting", "Calls that wait for an agent."),
    "rooms_reached": ("recall_watcher_livekit_reachable", "1 if LiveKit's server answers."),
    "records_reached": ("recall_watcher_records_reachable", "1 if the records can be read."),
}
_TOTALS = {
    "looks": ("recall_watcher_looks", "Looks at a whole room."),
    "asked": ("recall_watcher_agents_asked", "Agents that were asked whether they live."),
    "silences": ("recall_watcher_agents_silent", "Those that did not answer in time."),
    "deaths": ("recall_watcher_agents_lost", "Calls found without the agent that they had."),
    "evicted": ("recall_watcher_agents_evicted", "Frozen or dead agents thrown out."),
    "leases_broken": ("recall_watcher_leases_broken", "Leases taken from a silent holder."),
    "dispatched": ("recall_watcher_agents_dispatched", "Agents asked for; no standbys."),
    "dropped": ("recall_watcher_dispatches_dropped", "Dispatches that brought nobody in time."),
    "called_off": (
        "recall_watcher_dispatches_called_off",
        "Dispatches not needed any more.",
    ),
    "stood_in": ("recall_watcher_standbys_acted", "Calls that a standby took over."),
    "standbys_dispatched": ("recall_watcher_standbys_dispatched", "Standbys asked for."),
    "standbys_joined": ("recall_watcher_standbys_joined", "Standbys that came."),
    "given_up": ("recall_watcher_calls_given_up", "Calls whose agents all died."),
    "fallbacks": ("recall_watcher_fallbacks", "Fallback agents that came into these."),
    "rooms_outages": ("recall_watcher_livekit_outages", "Times LiveKit's server was lost."),
    "records_outages": ("recall_watcher_records_outages", "Times the records were lost."),
}


class WatcherMetrics(Collector):
    """The figures of one watcher, as they are when somebody reads them.

    In a worker register it where the worker's own figures are:
    ``prometheus_client.REGISTRY.register(WatcherMetrics(watcher.counts))``.
    """

    def __init__(self, counts: Counts, webhooks: Mapping[Outcome, int] | None = None) -> None:
        """Read these; `webhooks` are how many there were of each outcome, if any come here."""
        self._counts = counts
        self._webhooks = webhooks
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield each figure."""
        for field, (name, says) in _NOW.items():
            yield GaugeMetricFamily(name, says, value=float(getattr(self._counts, field)))
        for field, (name, says) in _TOTALS.items():
            yield CounterMetricFamily(name, says, value=float(getattr(self._counts, field)))
        yield SummaryMetricFamily(
            "recall_watcher_join_seconds",
            "How long agents took to join, from their dispatch; of those that did.",
            count_value=self._counts.joined,
            sum_value=self._counts.join_seconds,
        )
        if self._webhooks is not None:
            yield _by_outcome(self._webhooks)

    def text(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self._registry)


def _by_outcome(webhooks: Mapping[Outcome, int]) -> Metric:
    family = CounterMetricFamily(
        "recall_watcher_webhooks", "LiveKit's webhooks, by what became of them.", labels=["outcome"]
    )
    for outcome in OUTCOMES:
        family.add_metric([outcome], webhooks.get(outcome, 0))
    return family
