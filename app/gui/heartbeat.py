"""While the window is minimised its loop stands still inside the toolkit; this tells the engine to draw nothing."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from app.mailbox import Latest
from app.messages import ViewRequest

STALL_SECONDS = 1.0


class Heartbeat:
    """Touches mailboxes only, never Dear PyGui: any call would block until the window is shown again (G03)."""

    def __init__(self, requests: Latest[ViewRequest]) -> None:
        self._requests = requests
        self._beat = time.monotonic()
        self._stop = threading.Event()
        self._hidden = False
        self._thread = threading.Thread(target=self._watch, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def beat(self) -> bool:
        """Once per frame. True when the engine had been told that nobody looks: the request must be sent again."""
        self._beat = time.monotonic()
        was_hidden, self._hidden = self._hidden, False
        return was_hidden

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(STALL_SECONDS / 2):
            if self._hidden or time.monotonic() - self._beat < STALL_SECONDS:
                continue
            _, request = self._requests.get()
            if request is not None and not request.hidden:
                self._hidden = True
                self._requests.put(replace(request, hidden=True, moving=False))
