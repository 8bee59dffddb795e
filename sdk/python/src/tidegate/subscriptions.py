"""All subscriptions of a client and what each is at. Pure.

A subscription outlives connections. It is `waiting` while there is none, `asked` from the command until the answer,
then `live`; a break takes it back to `waiting`. Unsubscribing or a refusal ends it.

The server tells a session each topic once, however many selectors select it, and a `subscribe` restarts what it
overlaps with. So each subscription follows its own positions, and each `subscribe` asks for the earliest place that
any of them still needs: none of them is told anything twice, and none of them misses anything.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeGuard, Union, cast

from .backoff import Pauses, pause_ms
from .errors import TidegateError
from .overlaps import Overlaps
from .parts import Parts
from .payloads import Broken, Payloads, Whole
from .protocol import Command, Conflation, Delta, Event, Last, Position, Positions, Start, command
from .readers import Readers
from .selector import is_pattern, selects
from .tracker import Notification, Tracker
from .turns import Turns

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


@dataclass(frozen=True)
class Lag:
    """This client is behind what was published."""

    ms: int
    """The age of the oldest publication that it lacks; 0 when it has everything again."""


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
    what: Union[Notification, Lag, SubscriptionChange]


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
    # Where others that were asked for at the same time have the server read from: it may not be told again.
    described: dict[str, Event] = field(default_factory=dict)
    # Whether it asks for deltas; cleared when one could not be applied.
    takes_deltas: bool = False

    @property
    def manner(self) -> tuple[object, ...]:
        """How it is read. It goes for all that overlap when it is asked for last; deltas mean nothing less."""
        options = self.options
        return options.conflation, options.interval_ms, options.priority, options.filter


class Subscriptions:
    """The subscriptions of one client, named by an index. Times are milliseconds."""

    def __init__(self, next_id: Callable[[], int], pauses: Pauses, random: Callable[[], float]) -> None:
        """`random` gives a number in [0, 1)."""
        self._next_id = next_id
        self._pauses = pauses
        self._random = random
        self._all: dict[int, _Subscription] = {}
        self._readers: Readers[_Subscription] = Readers()
        self._overlaps: Overlaps[_Subscription] = Overlaps()
        self._manners: Counter[tuple[object, ...]] = Counter()
        # Those whose answer is awaited, by the id of the command.
        self._asked: dict[int, _Subscription] = {}
        # Who may take what was described before its answer, by topic.
        self._noted: dict[str, list[_Subscription]] = {}
        # Places that do not go into one command.
        self._parts: Parts[_Subscription] = Parts()
        # Those that the server put off, by index.
        self._postponed: dict[int, _Subscription] = {}
        self._turns: Turns[_Subscription] = Turns(next_id)
        self._payloads = Payloads()
        self._commands: deque[Command] = deque()
        self._notices: deque[Notice] = deque()
        self._is_connected = False
        self._next_index = 0

    def add(self, selectors: Sequence[str], options: ReadOptions) -> int:
        """Adds one, and answers its index. It is asked for at once, or when there is a connection.

        Raises `ValueError` if several topics are to start from one position.
        """
        positions = _own_positions(selectors, options)
        subscription = _Subscription(
            index=self._next_index,
            selectors=list(selectors),
            options=options,
            tracker=Tracker(options.start, positions),
            takes_deltas=options.delta not in (None, "none"),
        )
        self._next_index += 1
        self._all[subscription.index] = subscription
        self._enroll(subscription)
        if self._is_connected:
            self._ask(subscription)
        return subscription.index

    def remove(self, index: int) -> None:
        """Ends one. What others still read stays subscribed."""
        ended = self._all.get(index)
        if ended is None:
            return
        was_asked = ended.state in ("asked", "live")
        self._end(ended)
        topics = [selector for selector in ended.selectors if not self._readers.has(selector)]
        if was_asked and topics:
            self._commands.append(command("unsubscribe", self._next_id(), topics=topics))
        if was_asked:
            self._ask_for_what_is_left([ended])
        self._ask_held()

    def remove_all(self) -> None:
        """Ends all of them."""
        self._turns.clear()
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

    def handle_connected(self, message_bytes_max: int | None = None) -> None:
        """Asks for everything, each from where it was left. A command has so many bytes at most."""
        self._is_connected = True
        self._parts.handle_connected(message_bytes_max)
        for subscription in self._all.values():
            self._ask(subscription)

    def handle_disconnect(self) -> None:
        """Notes that the connection is gone: everything has to be asked for again."""
        self._is_connected = False
        self._commands.clear()
        self._asked.clear()
        self._noted.clear()
        self._parts.clear()
        self._postponed.clear()
        self._turns.clear()
        self._payloads.clear()
        for subscription in self._all.values():
            if subscription.was_live:
                subscription.tracker.handle_disconnect()
            subscription.refusals = 0
            self._enter(subscription, "waiting")

    def handle_event(self, event: Event, now: float) -> None:
        """Takes an event, if it concerns a subscription."""
        match event["type"]:
            case "subscribed":
                self._handle_subscribed(event)
            case "topic":
                self._handle_topic(event)
            case "publication" | "delta" | "fragment" | "gap":
                if self._noted:
                    # What was told to others since is nothing that those had, who were not answered yet.
                    for reader in self._noted.pop(event["topic"], ()):
                        reader.described.pop(event["topic"], None)
                if event["type"] == "gap":
                    self._handle_epoch(event)
                for whole in self._payloads.take(event):
                    self._handle_whole(whole)
            case "lag":
                for subscription in self._all.values():
                    if subscription.state == "live":
                        self._notices.append(Notice(subscription.index, Lag(event["ms"])))
            case "refused":
                self._handle_refused(event, now)
            case "unsubscribed":
                self._handle_unsubscribed(event)
            case "pong":
                self._turns.handle_pong(event.get("id"))
                self._ask_held()

    def handle_wake(self, now: float) -> None:
        """Asks again for what was put off."""
        for subscription in list(self._postponed.values()):
            if subscription.due_at <= now:
                self._ask(subscription)

    @property
    def needs_sources(self) -> bool:
        """Whether the exact text of payloads is needed, to apply deltas to it."""
        return self._payloads.expects_deltas

    def poll_command(self) -> Command | None:
        """The next command to send."""
        if self._commands:
            return self._commands.popleft()
        ping = self._turns.poll_ping()
        return None if ping is None else command("ping", ping)

    def peek_notice(self) -> Notice | None:
        """What `poll_notice` answers next."""
        return self._notices[0] if self._notices else None

    def poll_notice(self) -> Notice | None:
        """What to tell next."""
        return self._notices.popleft() if self._notices else None

    def _enter(
        self, subscription: _Subscription, state: SubscriptionState, error: TidegateError | None = None
    ) -> None:
        if subscription.state != state:
            subscription.state = state
            self._notices.append(Notice(subscription.index, SubscriptionChange(state, error)))

    def _end(self, subscription: _Subscription, error: TidegateError | None = None) -> None:
        del self._all[subscription.index]
        self._strike(subscription)
        self._parts.remove(subscription)
        self._forget_unread()
        self._postponed.pop(subscription.index, None)
        self._turns.remove(subscription)
        self._enter(subscription, "ended", error)

    def _forget_unread(self) -> None:
        """Drops pieces whose rest does not come."""
        self._payloads.forget_unless(lambda topic: bool(self._readers.of(topic)))

    def _ask(self, subscription: _Subscription) -> None:
        """Asks for it, or lets it wait for others that it overlaps with."""
        self._postponed.pop(subscription.index, None)
        is_live = subscription.state == "live"
        if not self._turns.must_wait(subscription, also_for_itself=is_live):
            return self._subscribe(subscription)
        subscription.asked_as = None
        if is_live:
            # What comes meanwhile would seem to follow what was lost.
            self._enter(subscription, "asked")

    def _ask_for_what_is_left(self, ended: Sequence[_Subscription]) -> None:
        """Has those that overlapped with what ended read under their own options.

        For the server all that overlap, also by way of others, are read as the newest of them says.
        """
        if len(self._manners.keys() | {each.manner for each in ended}) == 1:
            return
        seen: set[int] = set()
        parts = []
        for one in [neighbour for each in ended for neighbour in self._overlaps.of(each.selectors)]:
            if one.index not in seen:
                parts.append(self._part_of(one, seen))
        in_force = max([*ended, *(each for part in parts for each in part)], key=_order)
        newest = [max(part, key=_order) for part in parts if part]
        for subscription in sorted(newest, key=_order):
            if subscription.manner != in_force.manner:
                self._ask(subscription)

    def _part_of(self, one: _Subscription, seen: set[int]) -> list[_Subscription]:
        """Those asked for that overlap with `one`, also by way of others; notes in `seen` who was looked at."""
        part, unvisited = [], [one]
        while unvisited:
            each = unvisited.pop()
            is_asked = each.state in ("asked", "live") and each.asked_as is not None
            if each.index in seen or not is_asked:
                continue
            seen.add(each.index)
            part.append(each)
            unvisited.extend(self._overlaps.of(each.selectors))
        return part

    def _enroll(self, subscription: _Subscription) -> None:
        self._readers.add(subscription)
        self._overlaps.add(subscription)
        self._manners[subscription.manner] += 1

    def _strike(self, subscription: _Subscription) -> None:
        self._readers.remove(subscription)
        self._overlaps.remove(subscription)
        self._manners[subscription.manner] -= 1
        if not self._manners[subscription.manner]:
            del self._manners[subscription.manner]

    def _ask_held(self) -> None:
        for held in self._turns.take_held():
            self._ask(held)

    def _subscribe(self, subscription: _Subscription) -> None:
        options = subscription.options
        subscription.asked_as = id = self._next_id()
        self._asked[id] = subscription
        self._payloads.expects_deltas |= subscription.takes_deltas
        positions = self._places_for(subscription)
        subscription.tracker.handle_asked()
        subscription.described.clear()
        if not all(each in positions or self._is_covered(each, subscription) for each in subscription.selectors):
            self._turns.begin(subscription)
        # A topic without a position came into being meanwhile: all of it is news.
        start = "all" if subscription.was_live else options.start
        members = {
            "topics": list(subscription.selectors),
            "from": None if start == "snapshot" or _is_position(start) else start,
            "conflation": options.conflation,
            "interval_ms": options.interval_ms,
            "priority": options.priority,
            "filter": options.filter,
            "delta": options.delta if subscription.takes_deltas else None,
            "name": options.name,
        }
        asked = command("subscribe", id, **members)
        first, later = self._parts.split(subscription, asked, positions)
        subscription.tracker.handle_later(later)
        self._commands.append(command("subscribe", id, **{**members, "positions": first or None}))
        self._enter(subscription, "asked")

    def _ask_for_next_part(self) -> None:
        """Asks for topics by name, each from its place; their pattern goes on reading them."""
        part = self._parts.next()
        if part is None:
            return
        subscription, known = part
        # Somebody may have come meanwhile who needs an earlier one.
        places = {topic: self._place_for(subscription, topic) or place for topic, place in known.items()}
        id = self._next_id()
        self._parts.handle_asked(id, subscription, places)
        manner = {"conflation": subscription.options.conflation, "interval_ms": subscription.options.interval_ms}
        manner |= {"priority": subscription.options.priority, "filter": subscription.options.filter}  # type: ignore[dict-item]
        delta = subscription.options.delta if subscription.takes_deltas else None
        members = {"topics": list(places), "from": "all", "positions": places, "delta": delta, **manner}
        self._commands.append(command("subscribe", id, **members))

    def _is_covered(self, selector: str, subscription: _Subscription) -> bool:
        """Whether another has the same pattern, and knows where it is in all of its topics."""
        return is_pattern(selector) and any(
            other is not subscription and other.state == "live" and not self._turns.is_open(other)
            for other in self._readers.having(selector)
        )

    def _places_for(self, subscription: _Subscription) -> dict[str, Position]:
        """The earliest place that anybody needs of each topic that `subscription` reads."""
        topics = dict.fromkeys(subscription.tracker.topics())
        topics.update((selector, None) for selector in subscription.selectors if not is_pattern(selector))
        patterns = [selector for selector in subscription.selectors if is_pattern(selector)]
        if patterns:
            for other in self._overlaps.of(patterns):
                for topic in other.tracker.topics():
                    if any(selects(pattern, topic) for pattern in patterns):
                        topics[topic] = None
        places = {topic: self._place_for(subscription, topic) for topic in topics}
        return {topic: place for topic, place in places.items() if place is not None}

    def _place_for(self, subscription: _Subscription, topic: str) -> Position | None:
        place = subscription.tracker.position(topic)
        others = [other for other in self._readers.of(topic) if other is not subscription]
        if place is None:
            known = [at for other in others if other.was_live and (at := other.tracker.position(topic)) is not None]
            # The furthest is the nearest to the newest that there is.
            furthest = max((at for at in known if at["epoch"] == known[-1]["epoch"]), key=_sequence, default=None)
            place = None if furthest is None else _join(subscription, topic, furthest)
        for other in others:
            # Also what is asked for and not read yet has its place from there.
            theirs = other.tracker.position(topic) if other.was_live or other.state == "asked" else None
            if place is not None and theirs is not None and place["epoch"] == theirs["epoch"]:
                place = min(place, theirs, key=_sequence)
        return place

    def _handle_subscribed(self, event: Event) -> None:
        subscription = self._answered(event.get("id"))
        if subscription is not None:
            subscription.was_live = True
            subscription.refusals = 0
            self._enter(subscription, "live")
            for wire in subscription.described.values():
                is_unfinished = self._payloads.is_unfinished(wire["topic"])
                self._push(subscription, subscription.tracker.handle_noted(wire, is_unfinished=is_unfinished))
            subscription.described.clear()
            self._adopt_numbering(subscription)
        # All who read these topics are read to from there, whoever asked.
        for wire in event["topics"]:
            self._handle_topic(wire)
        if subscription is not None:
            self._turns.handle_answered(subscription)
            self._ask_held()
            self._ask_for_next_part()
        part = self._parts.handle_answered(event.get("id"))
        if part is not None:
            topics = [topic for topic in part[1] if not self._readers.has(topic)]
            if topics:
                self._commands.append(command("unsubscribe", self._next_id(), topics=topics))
            self._ask_for_next_part()

    def _adopt_numbering(self, subscription: _Subscription) -> None:
        """Takes the numbering that others were told of meanwhile: the server does not describe a topic again to a pattern if
        another selects it by name, and the place in the old numbering means nothing."""
        for topic, own in subscription.tracker.undescribed().items():
            for other in self._readers.of(topic):
                at = other.tracker.position(topic) if other is not subscription and other.state == "live" else None
                if at is not None and at["epoch"] != own["epoch"] and other.tracker.is_described(topic):
                    sequence = at["sequence"]
                    wire = {"topic": topic, "epoch": at["epoch"], "head": sequence, "start": sequence, "recovered": False}
                    self._push(subscription, subscription.tracker.handle_topic(wire))
                    break

    def _handle_topic(self, wire: Event) -> None:
        topic = wire["topic"]
        self._handle_epoch(wire)
        self._payloads.restart(topic, wire["start"])
        for reader in self._readers.of(topic):
            is_known = reader.was_live or reader.tracker.position(topic) is not None
            if reader.state == "asked" and reader.asked_as is not None and is_known:
                reader.described[topic] = wire
                self._noted.setdefault(topic, []).append(reader)
            elif reader.was_live and self._is_overtaken(reader, wire):
                reader.tracker.handle_overtaken(topic, wire["epoch"])
                if reader.state == "live":
                    self._ask(reader)
        is_unfinished = self._payloads.is_unfinished(topic)
        self._tell(topic, lambda tracker: tracker.handle_topic(wire, is_unfinished=is_unfinished))

    def _is_overtaken(self, reader: _Subscription, wire: Event) -> bool:
        """Whether a topic is read from beyond where `reader` is.

        Whoever was asked for after it did not know that `reader` reads the topic, and gave its own place, or none.
        """
        if wire.get("recovered") is False:
            return False
        is_known_to_all = not self._turns.is_open(reader)
        if not reader.tracker.is_before(wire["topic"], wire["epoch"], wire["start"], is_known_to_all=is_known_to_all):
            return False
        others = self._readers.of(wire["topic"])
        # Who skips may be read from further on at any time.
        skips = any(other.options.filter or other.options.conflation not in (None, "off") for other in others)
        return not skips and any(_order(other) > _order(reader) for other in others)

    def _handle_epoch(self, wire: Event) -> None:
        """A numbering that began anew: nothing that came of the old one is a base of what comes, or holds it up."""
        places = [reader.tracker.position(wire["topic"]) for reader in self._readers.of(wire["topic"])]
        if any(place is not None and place["epoch"] != wire["epoch"] for place in places):
            self._payloads.forget(wire["topic"])

    def _handle_whole(self, whole: Whole) -> None:
        if isinstance(whole, Broken):
            self._ask_without_deltas(whole.topic)
        elif whole["type"] == "gap":
            self._tell(whole["topic"], lambda tracker: tracker.handle_gap(whole))
        else:
            self._tell(whole["topic"], lambda tracker: tracker.handle_publication(whole))

    def _ask_without_deltas(self, topic: str) -> None:
        """Has `topic` told whole from where each reader is. Those who asked for it whole already wait for that."""
        for reader in self._readers.of(topic):
            must_ask = reader.state == "live" or (reader.state == "asked" and reader.takes_deltas)
            reader.takes_deltas = False
            if must_ask:
                self._ask(reader)

    def _handle_refused(self, event: Event, now: float) -> None:
        subscription = self._answered(event.get("id"))
        error = TidegateError(event["code"], event["error"])
        part = self._parts.handle_answered(event.get("id"))
        if part is not None:
            subscription, places = part
            if subscription is None:
                return self._ask_for_next_part()
            if error.code == TOO_MANY_SELECTORS and self._parts.halve(subscription, places):
                return self._ask_for_next_part()
        if subscription is None:
            return
        if error.advice not in ("retry-now", "retry-later"):
            self._end(subscription, error)
            return self._ask_held()
        pause = pause_ms(subscription.refusals, error.code, 0, self._pauses, self._random)
        subscription.due_at = now + pause
        subscription.refusals += 1
        self._postponed[subscription.index] = subscription
        self._turns.place(subscription)
        self._enter(subscription, "waiting", error)
        self._ask_held()

    def _answered(self, id: int | None) -> _Subscription | None:
        """The subscription that was asked for with this id, unless it ended or was asked for again since."""
        subscription = None if id is None else self._asked.pop(id, None)
        if subscription is None or subscription.state != "asked" or subscription.asked_as != id:
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
        ended = {reader.index: reader for selector in gone for reader in self._readers.having(selector)}
        for subscription in ended.values():
            left = [selector for selector in subscription.selectors if selector not in gone]
            if not left:
                self._end(subscription, error)
                continue
            self._strike(subscription)
            self._turns.place(subscription)
            subscription.selectors = left
            self._enroll(subscription)
        self._forget_unread()
        self._ask_for_what_is_left(list(ended.values()))
        self._ask_held()

    def _tell(self, topic: str, take: Callable[[Tracker], list[Notification]]) -> None:
        for reader in self._readers.of(topic):
            # Until it is answered, what comes is meant for others.
            if reader.state == "live":
                self._push(reader, take(reader.tracker))

    def _push(self, subscription: _Subscription, told: list[Notification]) -> None:
        self._notices.extend(Notice(subscription.index, one) for one in told)


def _order(subscription: _Subscription) -> int:
    return subscription.asked_as or 0


def _sequence(place: Position) -> int:
    return place["sequence"]


def _join(subscription: _Subscription, topic: str, theirs: Position) -> Position | None:
    """Where a new subscription starts in a topic of which another has read up to `theirs`."""
    # The server starts from the oldest that there is, or from where the name left off.
    back = None if subscription.was_live or subscription.options.name is not None else _back(subscription.options.start)
    if back is None:
        return None
    sequence = max(0, theirs["sequence"] - back)
    subscription.tracker.join(topic, theirs, sequence)
    return {"epoch": theirs["epoch"], "sequence": sequence}


def _back(start: Start) -> int | None:
    """How far before the newest publication it starts, if that can be said."""
    if isinstance(start, str):
        return {"now": 0, "snapshot": 1}.get(start)
    return cast(Last, start)["last"] if "last" in start else None


def _is_position(start: Start) -> TypeGuard[Position]:
    return isinstance(start, dict) and "epoch" in start


def _own_positions(selectors: Sequence[str], options: ReadOptions) -> Positions:
    if not _is_position(options.start):
        return options.positions
    if len(selectors) != 1 or is_pattern(selectors[0]):
        raise ValueError("cannot start several topics from one position: give `positions`, by topic")
    return {**options.positions, selectors[0]: options.start}
