"""All subscriptions of a client and what each is at. Pure.

A subscription outlives connections. It is `waiting` while there is none, `asked` from the command until the answer,
then `live`; a break takes it back to `waiting`. Unsubscribing or a refusal ends it.

Each has an id on the wire, under which the server keeps its options and its place, whatever else is read. What comes
names a reading, by number: a topic as it is read for those subscriptions that the topic's description lists.
docs/protocol.md#subscription-ids. A server without ids is told of subscriptions that do not overlap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeGuard, Union

from .backoff import Pauses, pause_ms
from .errors import SessionCode, TidegateError
from .parts import Places, parts_of
from .payloads import Payloads, ReadingKey
from .protocol import Command, Conflation, Delta, Event, Position, Positions, Start, command
from .selector import is_pattern, overlap, selects
from .tracker import Notification, Tracker

TOO_MANY_SELECTORS = 4207
"""The code of a `subscribe` with which the session would have more selectors than it may."""

SubscriptionState = Literal["waiting", "asked", "live", "ended"]
"""What a subscription is at."""


@dataclass(frozen=True)
class ReadOptions:
    """How a subscription is read. `Client.subscribe` says what each means."""

    start: Start = "snapshot"
    positions: Positions = field(default_factory=dict)
    conflation: Conflation | None = None
    interval_ms: int | None = None
    priority: int | None = None
    filter: str | None = None
    delta: Delta | None = None
    name: str | None = None
    time: bool = False
    principal: bool = False


@dataclass(frozen=True)
class Lag:
    """This client is behind what was published."""

    ms: int
    """The age of the oldest publication that it lacks; 0 when it has everything again."""


@dataclass(frozen=True)
class Complete:
    """All that was published when a subscription was asked for, also again after a break, was told."""


@dataclass(frozen=True)
class SubscriptionChange:
    """A subscription is at something else."""

    state: SubscriptionState
    error: TidegateError | None = None
    """Why, if the server ended it or put it off."""


@dataclass(frozen=True)
class Notice:
    """What came of an event, a command or time, and for which subscription."""

    of: int
    what: Union[Notification, Lag, Complete, SubscriptionChange]


@dataclass(eq=False)
class _Subscription:
    index: int
    selectors: list[str]
    options: ReadOptions
    tracker: Tracker
    state: SubscriptionState = "waiting"
    # It was live once: what comes next must join on to what was read.
    was_live: bool = False
    # How often it was put off, and until when.
    refusals: int = 0
    due_at: float = 0.0
    # The id of the newest `subscribe`: only its answer counts.
    asked_as: int | None = None
    # How many of its commands are not complete.
    open_count: int = 0
    # The readings that are its.
    readings: dict[ReadingKey, _Reading] = field(default_factory=dict)
    # Topics that are asked for by name, because their places had no room in the message before, and under which id.
    named: Places = field(default_factory=dict)
    named_id: int | None = None
    # Those of the next messages.
    unnamed: deque[Places] = field(default_factory=deque)
    # Whether it asks for deltas; cleared when one could not be applied.
    takes_deltas: bool = False

    @property
    def is_asked(self) -> bool:
        return self.state in ("asked", "live")

    def reads(self, topic: str) -> bool:
        return any(selects(selector, topic) for selector in self.selectors)


@dataclass(eq=False)
class _Reading:
    """A topic as it is read for some subscriptions."""

    topic: str
    epoch: str
    # By index.
    readers: dict[int, _Subscription] = field(default_factory=dict)


class Subscriptions:
    """The subscriptions of one client, named by an index. Times are milliseconds."""

    def __init__(self, next_id: Callable[[], int], pauses: Pauses, random: Callable[[], float]) -> None:
        """`random` gives a number in [0, 1)."""
        self._next_id = next_id
        self._pauses = pauses
        self._random = random
        self._all: dict[int, _Subscription] = {}
        # The same by their ids on the wire; those that are asked for in several messages have two at a time.
        self._ids: dict[int, _Subscription] = {}
        # Those whose answer is awaited, by the id of the command.
        self._asked: dict[int, _Subscription] = {}
        self._readings: dict[ReadingKey, _Reading] = {}
        # Those that the server put off, by index.
        self._postponed: dict[int, _Subscription] = {}
        self._payloads = Payloads()
        self._commands: deque[Command] = deque()
        self._notices: deque[Notice] = deque()
        self._is_connected = False
        self._has_ids = True
        self._bytes_max: int | None = None
        self._last_index = 0

    def add(self, selectors: Sequence[str], options: ReadOptions) -> int:
        """Adds one, and answers its index. It is asked for at once, or when there is a connection.

        Raises `ValueError` if several topics are to start from one position.
        """
        positions = _own_positions(selectors, options)
        subscription = _Subscription(
            index=self._next_index(),
            selectors=list(selectors),
            options=options,
            tracker=Tracker(options.start, positions),
            takes_deltas=options.delta not in (None, "none"),
        )
        self._all[subscription.index] = self._ids[subscription.index] = subscription
        if self._is_connected:
            self._subscribe(subscription)
        return subscription.index

    def remove(self, index: int) -> None:
        """Ends one."""
        ended = self._all.get(index)
        if ended is None:
            return
        was_asked = ended.is_asked
        self._end(ended)
        if was_asked:
            self._unsubscribe(index, ended.selectors)

    def remove_all(self) -> None:
        """Ends all of them."""
        for subscription in list(self._all.values()):
            self._end(subscription)
        self._commands.clear()

    def positions(self, index: int) -> dict[str, Position]:
        """Where a subscription is in each of its topics."""
        subscription = self._all.get(index)
        return {} if subscription is None else subscription.tracker.positions()

    @property
    def wake_at(self) -> float | None:
        """When it has to be woken, if nothing happens before."""
        return min((postponed.due_at for postponed in self._postponed.values()), default=None)

    def handle_connected(self, message_bytes_max: int | None = None, *, has_ids: bool = True) -> None:
        """Asks for everything, each from where it was left. A command has so many bytes at most."""
        self._is_connected = True
        self._has_ids = has_ids
        # Without ids nothing can be said of a subscription in several messages.
        self._bytes_max = message_bytes_max if has_ids else None
        for subscription in list(self._all.values()):
            self._subscribe(subscription)

    def handle_disconnect(self) -> None:
        """Notes that the connection is gone: everything has to be asked for again."""
        self._is_connected = False
        self._commands.clear()
        self._asked.clear()
        self._readings.clear()
        self._postponed.clear()
        self._payloads.clear()
        for subscription in self._all.values():
            if subscription.was_live:
                subscription.tracker.handle_disconnect()
            subscription.readings.clear()
            subscription.refusals = 0
            self._forget_named(subscription)
            self._enter(subscription, "waiting")

    def handle_event(self, event: Event, now: float) -> None:
        """Takes an event, if it concerns a subscription."""
        match event["type"]:
            case "subscribed":
                self._handle_subscribed(event)
            case "topic":
                self._handle_topic(event)
            case "publication" | "delta" | "fragment" | "gap":
                self._handle_arriving(event)
            case "complete":
                self._handle_complete(event["subscription"])
            case "lag":
                for subscription in self._all.values():
                    if subscription.state == "live":
                        self._notices.append(Notice(subscription.index, Lag(event["ms"])))
            case "refused":
                self._handle_refused(event, now)
            case "unsubscribed":
                self._handle_unsubscribed(event)

    def handle_wake(self, now: float) -> None:
        """Asks again for what was put off."""
        for subscription in list(self._postponed.values()):
            if subscription.due_at <= now:
                self._subscribe(subscription)

    @property
    def needs_sources(self) -> bool:
        """Whether the exact text of payloads is needed, to apply deltas to it."""
        return self._payloads.expects_deltas

    def poll_command(self) -> Command | None:
        """The next command to send."""
        return self._commands.popleft() if self._commands else None

    def peek_notice(self) -> Notice | None:
        """What `poll_notice` answers next."""
        return self._notices[0] if self._notices else None

    def poll_notice(self) -> Notice | None:
        """What to tell next."""
        return self._notices.popleft() if self._notices else None

    def _next_index(self) -> int:
        self._last_index += 1
        return self._last_index

    def _enter(
        self, subscription: _Subscription, state: SubscriptionState, error: TidegateError | None = None
    ) -> None:
        if subscription.state != state:
            subscription.state = state
            self._notices.append(Notice(subscription.index, SubscriptionChange(state, error)))

    def _end(self, subscription: _Subscription, error: TidegateError | None = None) -> None:
        del self._all[subscription.index], self._ids[subscription.index]
        self._forget_named(subscription)
        self._leave(subscription)
        self._postponed.pop(subscription.index, None)
        self._enter(subscription, "ended", error)

    def _leave(self, subscription: _Subscription) -> None:
        """Takes it out of all readings: what comes is meant for others, until it is described again."""
        for key in list(subscription.readings):
            self._part(subscription, key)

    def _part(self, subscription: _Subscription, key: ReadingKey) -> None:
        reading = subscription.readings.pop(key)
        del reading.readers[subscription.index]
        if not reading.readers:
            del self._readings[key]
            self._payloads.forget(key)

    def _unsubscribe(self, id: int, topics: Sequence[str]) -> None:
        what: dict[str, object] = {"subscription": id} if self._has_ids else {"topics": list(topics)}
        self._commands.append(command("unsubscribe", self._next_id(), **what))

    def _forget_named(self, subscription: _Subscription) -> None:
        """Ends the subscription to those that were asked for by name."""
        named_id = subscription.named_id
        subscription.named_id = None
        if named_id is not None:
            del self._ids[named_id]
            if self._is_connected:
                self._unsubscribe(named_id, [])

    def _subscribe(self, subscription: _Subscription) -> None:
        """Asks for it, from where it is: under its id that replaces what the server had."""
        self._postponed.pop(subscription.index, None)
        if not self._has_ids and self._refuse_overlap(subscription):
            return
        self._leave(subscription)
        self._forget_named(subscription)
        self._payloads.expects_deltas |= subscription.takes_deltas
        subscription.open_count = 0
        subscription.unnamed.clear()
        places, selectors = subscription.tracker.positions(), subscription.selectors
        first, *others = parts_of(places, self._bytes_max, self._asked_for(subscription, 0, selectors, {}))
        subscription.unnamed.extend({topic: at for topic, at in part.items() if subscription.reads(topic)} for part in others)
        self._send(subscription, subscription.index, selectors, first)
        self._enter(subscription, "asked")

    def _refuse_overlap(self, subscription: _Subscription) -> bool:
        """Without ids the server would read what overlaps under the options and from the place of the last."""
        for other in self._all.values():
            if other is subscription or not other.is_asked:
                continue
            if any(overlap(one, two) for one in other.selectors for two in subscription.selectors):
                beside = ", ".join(other.selectors)
                why = f"cannot subscribe beside the subscription to {beside}: they overlap, and the server has no `ids`; use one that has"
                self._end(subscription, TidegateError(SessionCode.MISSING_FEATURE, why))
                return True
        return False

    def _asked_for(self, subscription: _Subscription, id: int, topics: Sequence[str], places: Positions) -> Command:
        options = subscription.options
        # A topic without a position came into being meanwhile: all of it is news.
        start = "all" if subscription.was_live else options.start
        members = {
            "subscription": id if self._has_ids else None,
            "topics": list(topics),
            "from": None if start == "snapshot" or _is_position(start) else start,
            "positions": places or None,
            "conflation": options.conflation,
            "interval_ms": options.interval_ms,
            "priority": options.priority,
            "filter": options.filter,
            "delta": options.delta if subscription.takes_deltas else None,
            "name": options.name,
            "time": options.time or None,
            "principal": options.principal or None,
        }
        return command("subscribe", subscription.asked_as or 0, **members)

    def _send(self, subscription: _Subscription, id: int, topics: Sequence[str], places: Positions) -> None:
        subscription.asked_as = asked_as = self._next_id()
        subscription.open_count += 1
        self._asked[asked_as] = subscription
        self._commands.append(self._asked_for(subscription, id, topics, places))

    def _send_more(self, subscription: _Subscription) -> None:
        """Asks, by name and under an id of their own, for some of those topics whose places had no room before.

        They join the same readings, and take them back to where this subscription is.
        """
        self._forget_named(subscription)
        if not subscription.unnamed:
            return
        named = subscription.named = subscription.unnamed.popleft()
        subscription.named_id = named_id = self._next_index()
        self._ids[named_id] = subscription
        now = subscription.tracker.positions()
        self._send(subscription, named_id, list(named), {topic: now[topic] for topic in named})

    def _handle_subscribed(self, event: Event) -> None:
        subscription = self._answered(event.get("id"))
        if subscription is not None:
            subscription.was_live = True
            subscription.refusals = 0
            self._enter(subscription, "live")
        for wire in event["topics"]:
            self._handle_topic(wire)
        if subscription is not None and subscription.named_id is None:
            self._send_more(subscription)

    def _handle_complete(self, id: int) -> None:
        """Of those in several messages, it is complete when all of them are."""
        subscription = self._ids.get(id)
        if subscription is None or subscription.state != "live":
            return
        subscription.open_count -= 1
        if id == subscription.named_id:
            self._send_more(subscription)
        if subscription.open_count == 0:
            self._notices.append(Notice(subscription.index, Complete()))

    def _handle_topic(self, wire: Event) -> None:
        """Takes who is told what comes under a number, and where those begin of whom that is new."""
        topic, epoch, start = wire["topic"], wire["epoch"], wire["start"]
        key = self._key_of(wire)
        last = self._readings.get(key)
        before = last.readers if last is not None and last.topic == topic else {}
        if last is None or last.topic != topic or last.epoch != epoch:
            self._payloads.forget(key)
        reading = _Reading(topic, epoch)
        for reader in last.readers.values() if last is not None else ():
            del reader.readings[key]
        # Whoever was told it before goes on: a description may be for those alone that it lists.
        for reader in {**before, **{reader.index: reader for reader in self._readers_of(wire)}}.values():
            is_new = reader.index not in before
            if is_new and "recovered" not in wire and reader.tracker.is_before(topic, epoch, start):
                # It is described for another: of the place that this one gave, or will give by name, it would say that.
                continue
            if is_new:
                # What is under way beyond where it begins comes again.
                self._payloads.restart(key, start)
            reading.readers[reader.index] = reader
            reader.readings[key] = reading
            told = reader.tracker.handle_topic(wire, is_new=is_new)
            self._notices.extend(Notice(reader.index, one) for one in told)
        if reading.readers:
            self._readings[key] = reading
        else:
            self._readings.pop(key, None)

    def _key_of(self, wire: Event) -> ReadingKey:
        key: ReadingKey = wire["number"] if self._has_ids else wire["topic"]
        return key

    def _readers_of(self, wire: Event) -> list[_Subscription]:
        if self._has_ids:
            listed = (self._ids.get(id) for id in wire.get("subscriptions", ()))
            found = [each for each in listed if each is not None]
        else:
            found = [each for each in self._all.values() if each.reads(wire["topic"])]
        return [each for each in dict.fromkeys(found) if each.state == "live"]

    def _handle_arriving(self, wire: Event) -> None:
        """Takes what may have to wait, or be put together, before it is told."""
        key = self._key_of(wire)
        reading = self._readings.get(key)
        if reading is None:
            return
        if wire["type"] == "gap" and wire["epoch"] != reading.epoch:
            # Nothing of the old numbering is a base of what comes, or holds it up.
            self._payloads.forget(key)
            reading.epoch = wire["epoch"]
        for whole in self._payloads.take(key, wire):
            if whole is None:
                self._repair(reading)
                continue
            for index, reader in reading.readers.items():
                is_gap = whole["type"] == "gap"
                told = reader.tracker.handle_gap(whole) if is_gap else reader.tracker.handle_publication(whole)
                if told is not None:
                    self._notices.append(Notice(index, told))

    def _repair(self, reading: _Reading) -> None:
        """Asks again for what could not be put together, without deltas: the values come whole."""
        for reader in list(reading.readers.values()):
            reader.takes_deltas = False
            self._subscribe(reader)

    def _handle_refused(self, event: Event, now: float) -> None:
        subscription = self._answered(event.get("id"))
        if subscription is None:
            return
        error = TidegateError(event["code"], event["error"])
        if error.code == TOO_MANY_SELECTORS and subscription.named_id is not None and len(subscription.named) > 1:
            # There is room for fewer.
            places = list(subscription.named.items())
            middle = len(places) // 2
            subscription.unnamed.extendleft((dict(places[middle:]), dict(places[:middle])))
            subscription.open_count -= 1
            return self._send_more(subscription)
        if error.advice not in ("retry-now", "retry-later"):
            return self._end(subscription, error)
        pause = pause_ms(subscription.refusals, error.code, 0, self._pauses, self._random)
        subscription.due_at = now + pause
        subscription.refusals += 1
        self._postponed[subscription.index] = subscription
        self._leave(subscription)
        self._enter(subscription, "waiting", error)

    def _answered(self, id: int | None) -> _Subscription | None:
        """The subscription that was asked for with this id, unless it ended or was asked for again since."""
        subscription = None if id is None else self._asked.pop(id, None)
        if subscription is None or subscription.state == "ended" or subscription.asked_as != id:
            return None
        return subscription

    def _handle_unsubscribed(self, event: Event) -> None:
        """Without an id it is the server that ended it, because the reader was too far behind."""
        if event.get("id") is not None:
            return
        text = (
            "cannot keep the subscription: its reader was too far behind; read faster, or subscribe with "
            'conflation="lagging"'
        )
        error = TidegateError(event.get("code", 4102), event.get("error", text))
        gone = set(event["selectors"])
        named = self._ids.get(event.get("subscription", 0))
        for subscription in [named] if named is not None else list(self._all.values()):
            left = [selector for selector in subscription.selectors if selector not in gone]
            if not left:
                self._end(subscription, error)
            elif len(left) < len(subscription.selectors):
                subscription.selectors = left
                for key, reading in list(subscription.readings.items()):
                    if not subscription.reads(reading.topic):
                        self._part(subscription, key)


def _is_position(start: Start) -> TypeGuard[Position]:
    return isinstance(start, dict) and "epoch" in start


def _own_positions(selectors: Sequence[str], options: ReadOptions) -> Positions:
    if not _is_position(options.start):
        return options.positions
    if len(selectors) != 1 or is_pattern(selectors[0]):
        raise ValueError("cannot start several topics from one position: give `positions`, by topic")
    return {**options.positions, selectors[0]: options.start}
