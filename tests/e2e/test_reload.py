"""What SIGHUP does with each setting, as docs/configuration.md says."""

import re
import signal
import socket
import subprocess

import httpx
import pytest
from server import PATIENCE_SECONDS, PROGRAM, Server, until
from test_settings import tidegate
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

CLASSES = 'classes = [{name = "phones", bytes_per_second = 1000000}]\n'
APPLICATIONS = (
    'applications = [{id = "m", keys = [{id = "k", key = "0123456789abcdef", roles = ["application"]}]}]\n'
)
HOOK = '{name = "w", url = "http://127.0.0.1:1", topics = ["x"], secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"}'
# Values of settings whose default says too little of what else they may be.
OTHERS = {
    "access.anonymous": '"read"',
    "access.origins": '["https://a.example"]',
    "access.hosts": '["push.example"]',
    "access.trusted_proxies": '["10.0.0.0/8"]',
    "access.tokens": '[{token = "t", name = "a"}]',
    "applications": APPLICATIONS.split(" = ", 1)[1].strip().replace("abcdef", "ABCDEF"),
    "log.level": '"info,server=debug"',
    "classes": '[{name = "phones", bytes_per_second = 5}]',
    "topics": '[{selector = "a/#", history_count = 3}]',
    "webhooks": f"[{HOOK}]",
}


def column():
    """Each setting: its default, and what a reload does with it."""
    ran = subprocess.run([PROGRAM, "config", "doc"], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    section, found = None, {}
    for line in ran.stdout.splitlines():
        if heading := re.match(r"## \[+(\w+)\]+$", line):
            section = heading[1]
        elif whole := re.match(r"Reload: (live|new connections|restart)\.", line):
            found[section] = ("[]", whole[1])
        elif row := re.match(r"\| `(\w+)` \| [^|]+ \| (?:unset, such as )?`([^`]+)` \| (live|new connections|restart) \|", line):
            found[f"{section}.{row[1]}"] = (row[2], row[3])
    return found


def other(setting, default):
    if setting in OTHERS:
        return OTHERS[setting]
    if default in ("true", "false"):
        return "false" if default == "true" else "true"
    return str(int(default) + 1) if default.isdigit() else default if default.startswith("[") else f'"other-{default[1:]}'


def text_with(setting=None, value=None):
    whole = {"classes": CLASSES, "applications": APPLICATIONS}
    if setting is None or "." in setting:
        lists = "".join(whole.values())
        return lists if setting is None else lists + "[{}]\n{} = {}\n".format(*setting.split("."), value)
    whole[setting] = f"{setting} = {value}\n"
    return "".join(whole.values())


def reload(server, text):
    """Has the server read this; answers what it says of it."""
    said = len(server.lines)
    server.file.write_text(text)
    server.signal(signal.SIGHUP)
    done = re.compile("configuration taken over|not taken over: [^`]")
    until(lambda: done.search("".join(server.lines[said:])), "it says that it read it")
    return "".join(server.lines[said:])


@pytest.fixture
def server(tmp_path):
    server = Server(None, tmp_path, words=("serve", "--config", tmp_path / "tidegate.toml"))
    server.file.write_text(text_with())
    with server:
        yield server


def test_the_column_is_true_of_every_setting(server):
    settings = column()
    assert len(settings) > 110 and set(OTHERS) <= set(settings), settings
    # The flag goes before the file, whatever that says, and excludes a list of listeners.
    del settings["server.listen"], settings["listeners"]
    said = reload(server, text_with() + '[[listeners]]\naddress = "127.0.0.1:1"\n')
    assert "not taken over" in said and "`listeners`" in said and "--listen" in said, said
    # Fixed words, which another text would not be.
    fixed = {"access.anonymous_class": '"phones"', "diagnostics.fault": '"panic shard-0"'}
    for setting, (default, does) in settings.items():
        said = reload(server, text_with(setting, fixed.get(setting) or other(setting, default)))
        waits = f"not taken over: `{setting}` was changed, and goes only after a restart" in said
        taken = setting in re.search(r'configuration taken over changed="?([^"\n]*)', said)[1].split()
        assert (waits, taken) == (does == "restart", does != "restart"), (setting, does, said)


def publish(server, data=1, token=None, host=None):
    headers = {**({"authorization": f"Bearer {token}"} if token else {}), **({"host": host} if host else {})}
    answer = httpx.post(f"{server.http}/v1/publish", json={"topic": "a", "data": data}, headers=headers, timeout=PATIENCE_SECONDS)
    return answer.status_code


def say(session, text):
    session.send(text)
    answer = session.recv(timeout=PATIENCE_SECONDS)
    return answer


TOKEN = '[access]\nanonymous = "none"\n[[access.tokens]]\ntoken = "{}"\nname = "feed"\npublish = ["#"]\n'
PUBLISH = '{"id": 1, "type": "publish", "topic": "a", "data": 1}'


def test_tokens_go_for_who_comes_and_who_is_in_stays(server):
    reload(server, text_with() + TOKEN.format("old"))
    assert (publish(server), publish(server, token="old"), publish(server, token="new")) == (401, 200, 401)
    fields = {"Authorization": "Bearer old"}
    with connect(f"{server.url}/v1/ws", additional_headers=fields) as session:
        reload(server, text_with() + TOKEN.format("new"))
        assert (publish(server, token="old"), publish(server, token="new")) == (401, 200)
        assert '"published"' in say(session, PUBLISH)
    with pytest.raises(InvalidStatus), connect(f"{server.url}/v1/ws", additional_headers=fields):
        pass


def test_origins_and_hosts_go_for_who_comes(server):
    def is_let_in(origin):
        try:
            with connect(f"{server.url}/v1/ws", origin=origin):
                return True
        except InvalidStatus:
            return False

    assert (is_let_in("https://a.example"), publish(server, host="push.example")) == (False, 421)
    reload(server, text_with() + '[access]\norigins = ["https://a.example"]\nhosts = ["push.example"]\n')
    assert (is_let_in("https://a.example"), publish(server, host="push.example")) == (True, 200)
    reload(server, text_with())
    assert (is_let_in("https://a.example"), publish(server, host="push.example")) == (False, 421)


def test_live_limits_go_for_who_is_in(server):
    filtered = '{"id": 2, "type": "subscribe", "topics": ["a"], "filter": "1 == 1"}'
    with connect(f"{server.url}/v1/ws") as session, socket.create_connection(("127.0.0.1", server.port)) as idle:
        reload(server, text_with() + "[limits]\nfilter_bytes_max = 3\nkeep_alive_ms = 1\n")
        assert "refused" in (said := say(session, filtered)) and "filter" in said, said
        idle.settimeout(PATIENCE_SECONDS)
        assert idle.recv(1) == b"", "keep_alive_ms goes for a connection that was there"


def test_the_level_of_the_log_goes_at_once(server):
    def session():
        with connect(f"{server.url}/v1/ws") as session:
            assert '"published"' in say(session, PUBLISH)

    session()
    reload(server, text_with() + '[log]\nlevel = "info,server=debug"\n')
    assert "session opened" not in server.errors()
    session()
    until(lambda: "session opened" in server.errors(), server.errors)


def test_the_first_application_goes_without_a_restart(tmp_path):
    server = Server(None, tmp_path, words=("serve", "--config", tmp_path / "tidegate.toml"))
    server.file.write_text(CLASSES)

    def stats():
        headers = {"authorization": "Bearer 0123456789abcdef"}
        url = f"{server.http}/v1/applications/m/stats"
        return httpx.get(url, headers=headers, timeout=PATIENCE_SECONDS).status_code

    def event():
        """Anybody who is no device says what a device would."""
        event = {"topic": "devices/m/d/events", "data": 1}
        return httpx.post(f"{server.http}/v1/publish", json=event, timeout=PATIENCE_SECONDS).status_code

    with server:
        assert (stats(), event()) == (401, 200)
        said = reload(server, CLASSES + APPLICATIONS.replace('"application"', '"admin"'))
        assert "changed=applications" in said.replace('"', "") and "not taken over" not in said, said
        assert (stats(), event()) == (200, 403)


def test_what_needs_a_restart_goes_on_as_it_was(server):
    said = reload(server, text_with() + "[limits]\npayload_bytes_max = 3\n[diagnostics]\necho = true\n")
    assert "`limits.payload_bytes_max` was changed" in said and "`diagnostics.echo` was changed" in said
    assert publish(server, "more than three bytes") == 200
    assert server.status("/diagnostics/echo") == 404


def test_a_broken_file_is_refused_whole(server):
    reload(server, text_with() + TOKEN.format("old"))
    said = reload(server, text_with() + TOKEN.format("new") + "[limits]\nfilter_bytes_max = 0\n")
    assert "not taken over: " in said and "`limits.filter_bytes_max`: its value is not a whole number" in said, said
    assert (publish(server, token="old"), publish(server, token="new")) == (200, 401)


def test_files_that_variables_name_are_read_anew(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text('[{token = "old", name = "feed", publish = ["#"]}]')
    env = {"TIDEGATE__ACCESS__TOKENS__FILE": str(tokens), "TIDEGATE__ACCESS__ANONYMOUS": "none"}
    with Server(None, tmp_path, env=env) as server:
        assert (publish(server, token="old"), publish(server, token="new")) == (200, 401)
        tokens.write_text('[{token = "new", name = "feed", publish = ["#"]}]')
        reload(server, "")
        assert (publish(server, token="old"), publish(server, token="new")) == (401, 200)
        assert tidegate("config", "show", **env).returncode == 0
