"""A server to be asked, and a grid that goes on under it."""

import http.client
import json
import threading
import time
from pathlib import Path

from ablation.serve.server import Server
from tests.simulate import Study, write_status

TOY = Study(states={("v2", 0): "running", ("v3", 0): "missing"})


def progress(folder, **changed):
    content = {"done": 5, "total": 20, "unit": "steps", "started": time.time() - 10, "updated": time.time()}
    (folder / "progress.json").write_text(json.dumps(content | changed))


def fail_the_last(results):
    """End the last stage of the plan in another way than before."""
    stage = json.loads((results / "plan.json").read_text())["stages"][-1]
    write_status(Path(stage["dir"]), stage, "failed", "disk full")


class Asking:
    """A server of a results folder in a thread, and nothing that draws; `ask` is one request."""

    answers = True

    def __init__(self, results, folder):
        self.server = Server(0, results, folder)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def ask(self, path="/", method="GET", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=900)
        connection.request(method, path, body=body, headers={name.replace("_", "-"): v for name, v in headers.items()})
        answer = connection.getresponse()
        answer.body = answer.read()  # type: ignore[attr-defined]
        connection.close()
        return answer

    def text(self, path="/now"):
        answer = self.ask(path)
        assert answer.status == 200
        return answer.body.decode()

    def end(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
