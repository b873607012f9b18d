"""Orders of work against the known schedules."""

from __future__ import annotations

import pytest

from tracekit.analysis.pipeline.recognise import Entry, Orders, recognise
from tracekit.theory.schedules import NAMES, Schedule, build, parts

V = {"Interleaved1F1B": 2, "LoopedBFS": 2, "InterleavedZeroBubble": 2}


def recorded(schedule: Schedule, told: str) -> Orders:
    """The orders of a schedule as a recording tells them: everything, micro-batches only, kinds only."""

    def entry(step: object) -> Entry:
        return tuple(
            (a.kind.value, a.stage if told == "all" else None, None if told == "kinds" else a.micro_batch)
            for a in parts(step)  # type: ignore[arg-type]
        )

    return tuple(tuple(map(entry, order)) for order in schedule.orders)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "DualPipe"])
def test_every_schedule_is_known_by_its_actions(name: str) -> None:
    schedule = build(name, 4, 8, V.get(name))
    found = recognise(recorded(schedule, "all"), None, schedule.sends)
    assert found.name is not None
    assert name in found.name.split("|")
    assert found.ran is not None
    assert found.ran.orders == schedule.orders


@pytest.mark.parametrize("name", ["GPipe", "1F1B", "Interleaved1F1B", "ZB-H1", "ZBVZeroBubble"])
def test_kinds_and_the_number_of_messages_are_enough(name: str) -> None:
    schedule = build(name, 4, 8, V.get(name))
    found = recognise(recorded(schedule, "kinds"), None, schedule.sends)
    assert found.name is not None
    assert name in found.name.split("|")
    assert found.ran is not None
    assert found.ran.orders == schedule.orders


def test_a_deviation_is_counted_and_named() -> None:
    orders = [list(o) for o in recorded(build("1F1B", 4, 8), "all")]
    orders[1][4], orders[1][5] = orders[1][5], orders[1][4]
    found = recognise(tuple(map(tuple, orders)), None, 48)
    assert found.name == "1F1B"
    assert found.deviations == (0, 1, 0, 0)
    assert found.first[1] == "entry 4: 1B1, the schedule has 1F3"
    assert found.ran is not None
    assert [str(s) for s in found.ran.orders[1][3:6]] == ["1B0", "1B1", "1F3"]


def test_a_cut_order_is_none() -> None:
    orders = tuple(o[:-3] for o in recorded(build("1F1B", 4, 8), "kinds"))
    found = recognise(orders, None, None)
    assert (found.name, found.ran, found.reason) == (None, None, "order-unknown")


def test_one_micro_batch_fits_several_schedules() -> None:
    found = recognise(recorded(build("1F1B", 2, 1), "kinds"), None, 2)
    assert found.name is not None
    assert {"GPipe", "1F1B"} <= set(found.name.split("|"))
