"""Stand-ins for what the client of a run uses of Dask."""

import asyncio
import threading


class Loop:
    """An event loop in a thread, with what is used of tornado's."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def add_callback(self, make):
        asyncio.run_coroutine_threadsafe(make(), self.loop)

    def end(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
