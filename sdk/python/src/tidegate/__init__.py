"""The Python SDK of Tidegate: connect, subscribe, resume after a break, publish with acknowledgement.

Four state machines stand behind a `Client`, all pure: the connection, the subscriptions with their trackers, the
handlings, and the requests. The client puts transports, a clock and handlers around them.
"""

from .client import Client
from .connection import ConnectionChange, ConnectionState, ConnectionTimes
from .device import Authorization, Device, key_proof
from .errors import Advice, LocalCode, TidegateError, advice_of
from .handling import Handling, RequestHandler
from .handlings import HandlingState
from .options import HistoryPage, Kept, Published, Reply, Request, Response, TokenProvider
from .poll import poll_transport
from .protocol import Conflation, Delta, GapReason, Last, PayloadKind, Position, Positions, Since, Start
from .publisher import Draft, Publisher
from .responses import Responses
from .sse import sse_transport
from .stream import Stream, WhenFull
from .subscription import Subscription
from .subscriptions import Complete, Lag, SubscriptionChange, SubscriptionState
from .tracker import Gap, Publication, Resumed
from .transport import OpenTransport, Transport, TransportHandlers
from .transports import TransportName
from .websocket import web_socket_transport

__all__ = [
    "Advice",
    "Authorization",
    "Client",
    "Complete",
    "Conflation",
    "ConnectionChange",
    "ConnectionState",
    "ConnectionTimes",
    "Delta",
    "Device",
    "Draft",
    "Gap",
    "GapReason",
    "Handling",
    "HandlingState",
    "HistoryPage",
    "Kept",
    "Lag",
    "Last",
    "LocalCode",
    "OpenTransport",
    "PayloadKind",
    "Position",
    "Positions",
    "Publication",
    "Published",
    "Publisher",
    "Reply",
    "Request",
    "RequestHandler",
    "Response",
    "Responses",
    "Resumed",
    "Since",
    "Start",
    "Stream",
    "Subscription",
    "SubscriptionChange",
    "SubscriptionState",
    "TidegateError",
    "TokenProvider",
    "Transport",
    "TransportHandlers",
    "TransportName",
    "WhenFull",
    "advice_of",
    "key_proof",
    "poll_transport",
    "sse_transport",
    "web_socket_transport",
]
