"""What an operator sees of a watcher: each thing that it counts, by a name that stays."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from recall_livekit.watcher.counts import Counts
from recall_livekit.watcher.metrics import WatcherMetrics
from recall_livekit.watcher.webhooks import OUTCOMES, Outcome


def told(metrics: WatcherMetrics) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.text().decode())
    samples = [sample for family in families for sample in family.samples]
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for sample in samples
    }


def test_each_thing_that_is_counted_is_told() -> None:
    counts = Counts()
    numbers = dict(enumerate((field.name for field in fields(Counts)), 1001))
    for number, name in numbers.items():
        setattr(counts, name, number)
    values = Counter(int(value) for value in told(WatcherMetrics(counts)).values())
    assert {numbers[number] for number in numbers if values[number] == 0} == set()
    assert len(values) == len(numbers)


def test_they_are_told_as_they_are_now() -> None:
    counts = Counts()
    metrics = WatcherMetrics(counts)
    assert told(metrics)["recall_watcher_acting"] == 0
    counts.acting = True
    counts.joined += 1
    counts.join_seconds += 0.4
    after = told(metrics)
    assert after["recall_watcher_acting"] == 1
    assert after["recall_watcher_join_seconds_count"] == 1
    assert after["recall_watcher_join_seconds_sum"] == 0.4


def test_each_outcome_of_a_webhook_is_told_from_the_first_scrape_on() -> None:
    outcomes: Counter[Outcome] = Counter({"forged": 2})
    after = told(WatcherMetrics(Counts(), outcomes))
    assert {name: value for name, value in after.items() if "webhook" in name} == {
        f"recall_watcher_webhooks_total[{outcome}]": 2.0 if outcome == "forged" else 0.0
        for outcome in OUTCOMES
    }


def test_without_webhooks_there_are_none() -> None:
    assert not [name for name in told(WatcherMetrics(Counts())) if "webhook" in name]


def test_the_names_stay() -> None:
    """Dashboards and alerts are made of them."""
    names = {name.split("[")[0] for name in told(WatcherMetrics(Counts()))}
    assert names >= {
        "recall_watcher_acting",
        "recall_watcher_agents_asked_total",
        "recall_watcher_agents_dispatched_total",
        "recall_watcher_agents_evicted_total",
        "recall_watcher_agents_lost_total",
        "recall_watcher_agents_silent_total",
        "recall_watcher_calls_given_up_total",
        "recall_watcher_calls_waiting",
        "recall_watcher_dispatches_called_off_total",
        "recall_watcher_dispatches_dropped_total",
        "recall_watcher_fallbacks_total",
        "recall_watcher_join_seconds_count",
        "recall_watcher_livekit_reachable",
        "recall_watcher_records_reachable",
        "recall_watcher_rooms",
    }
    assert all(name.startswith("recall_watcher_") for name in names)


def test_a_worker_tells_them_with_its_own() -> None:
    registry = CollectorRegistry()
    registry.register(WatcherMetrics(Counts(given_up=3)))
    assert b"recall_watcher_calls_given_up_total 3.0" in generate_latest(registry)
