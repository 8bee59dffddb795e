"""Publish and subscribe with uWebSockets: readers at /sub/TOPIC,TOPIC, publishers at /pub."""

import sys

from socketify import App, AppListenOptions, CompressOptions, OpCode


def upgrade(response, request, context):
    response.upgrade(
        request.get_header("sec-websocket-key"),
        request.get_header("sec-websocket-protocol"),
        request.get_header("sec-websocket-extensions"),
        context,
        request.get_parameter(0),
    )


def opened(socket):
    for topic in socket.get_user_data().split(","):
        socket.subscribe(topic)


def main():
    app = App()

    def heard(socket, message, opcode):
        data = message if isinstance(message, bytes) else message.encode()
        topic, payload = data.split(b" ", 1)
        app.publish(topic.decode(), payload, OpCode.BINARY, False)

    options = {
        "compression": CompressOptions.DISABLED,
        "max_payload_length": 16 * 1024 * 1024,
        "max_backpressure": 64 * 1024 * 1024,
        "idle_timeout": 0,
        "send_pings_automatically": False,
    }
    app.ws("/sub/:topics", {**options, "upgrade": upgrade, "open": opened})
    app.ws("/pub", {**options, "message": heard})
    app.listen(AppListenOptions(port=int(sys.argv[1]), host="127.0.0.1"), lambda _: None)
    app.run()


main()
