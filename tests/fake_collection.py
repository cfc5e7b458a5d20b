"""A Collection that writes down what a profile asks of it, so that transitions can be
compared exactly and made to fail."""

import types


class FakeRecording:
    def __init__(self, header, number):
        self.header = header
        self.number = number

    def with_metadata(self, values):
        metadata = {**self.header["metadata"], **values}
        return FakeRecording({**self.header, "metadata": metadata}, self.number)

    def summary(self, color=None):
        return f"recording {self.number}"

    def save(self, path):
        with open(path, "wb") as file:
            file.write(b"recording")

    export_chrome_trace = save


def fake_module():
    """A stand-in for memprof._collection. Its `calls` is the list of what was asked, its
    `failing` a dict from call to the exception that it raises."""
    module = types.ModuleType("memprof._collection")
    module.calls = calls = []
    module.made = made = []
    module.failing = failing = {}
    finished = []

    def note(call, *arguments):
        calls.append(" ".join([call, *map(str, arguments)]))
        if call in failing:
            raise failing[call]

    class Collection:
        def __init__(self, **options):
            self.options = options
            self.active = False
            made.append(self)

        def start(self):
            assert not any(other.active for other in made)
            self.active = True
            note("start")

        def begin_window(self):
            assert self.active
            note("begin")

        def mark_step(self, number):
            assert self.active
            note("mark", number)

        def end_step(self):
            assert self.active
            note("end")

        def stop(self, header):
            assert self.active
            note("stop")
            self.active = False
            finished.append(FakeRecording(header, len(finished) + 1))
            return finished[-1]

        def abandon(self):
            assert self.active
            self.active = False
            calls.append("abandon")

    module.Collection = Collection
    return module
