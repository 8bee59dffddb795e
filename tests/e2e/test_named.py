"""`tidegate sub --name`: the server remembers how far a client came that keeps nothing itself."""

from server import Server


CONFIG = '[store]\npath = "{store}"\n[[topics]]\nselector = "jobs/#"\nack = "disk"\n'


def test_a_named_subscriber_goes_on_after_a_kill(tmp_path):
    server = Server(CONFIG, tmp_path).start()
    try:
        lines = "\n".join(f"job {number}" for number in range(1, 11))
        assert server.run("pub", "jobs/a", "-", input=lines + "\n").returncode == 0
        first = server.run("sub", "jobs/+", "--name", "worker", "--count", "4")
        assert first.stdout.splitlines() == [f"jobs/a {n} job {n}" for n in range(1, 5)]
        assert first.returncode == 0, first.stderr
        server.kill()
        server.start()
        rest = server.run("sub", "jobs/+", "--name", "worker", "--count", "6")
        assert rest.stdout.splitlines() == [f"jobs/a {n} job {n}" for n in range(5, 11)]
        other = server.run("sub", "jobs/+", "--name", "another", "--count", "1")
        assert other.stdout.splitlines() == ["jobs/a 1 job 1"]
        wrong = server.run("sub", "jobs/+", "--name", "a/b", "--count", "1")
        assert wrong.returncode == 2 and "A-Z" in wrong.stderr
    finally:
        server.kill()
