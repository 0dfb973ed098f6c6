"""Stubs of the parts of Dask that the client of a run uses."""

import asyncio
import threading


class Loop:
    """An event loop in a thread, with the used part of tornado's interface."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def add_callback(self, make):
        asyncio.run_coroutine_threadsafe(make(), self.loop)

    def end(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
