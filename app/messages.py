"""The whole protocol between the window and the engine, under one name: frozen dataclasses, numpy only.

Each part stands in a file of app/protocol/; a new part is a file there and a line here.
"""

from app.protocol.commands import *  # noqa: F403
from app.protocol.control import *  # noqa: F403
from app.protocol.densify import *  # noqa: F403
from app.protocol.events import *  # noqa: F403
from app.protocol.films import *  # noqa: F403
from app.protocol.saving import *  # noqa: F403
from app.protocol.snapshot import *  # noqa: F403
from app.protocol.timeline import *  # noqa: F403
from app.protocol.view import *  # noqa: F403
