"""The profiler object: torch.profiler.profile's keywords, methods and transitions, on top
of memprof's own recorder."""

import json
import os
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from memprof import _active, _options, _run, schedules
from memprof._later import PreparedProfiler, TorchResults
from memprof._metadata import Metadata, checked_json, checked_key, distributed_info
from memprof._notices import last_line, notify
from memprof._window import Observer, Window
from memprof.activities import parse_activities

if TYPE_CHECKING:
    from typing_extensions import Self

    from memprof.activities import ProfilerAction, ProfilerActivity
    from memprof.recording import Recording

__all__ = ["profile"]


class profile(TorchResults):
    """Records where memory goes, from start() (or the start of its `with` block) to stop().

    Keywords, attributes and methods are those of torch.profiler.profile, and memprof's
    own: `operators=False` leaves operators out (memory with stacks only), `max_memory`
    bounds the recorder's own memory and `at_limit` says what happens there ("stop": the
    window ends; "ring": the last whole steps are kept). `schedule` may also be a list or
    set of step numbers.
    """

    def __init__(
        self,
        *,
        activities: "Iterable[ProfilerActivity | dict[ProfilerActivity, list[str]] | None]"
        " | None" = None,
        schedule: "Callable[[int], ProfilerAction] | Iterable[int] | None" = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = True,
        with_stack: bool = True,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Observer | None = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        operators: bool = True,
        max_memory: int | str = "1 GiB",
        at_limit: str = "stop",
    ) -> None:
        asked, self.activity_filters = _options.asked_activities(activities, use_cuda)
        self.activities = asked
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.with_modules = with_modules
        self.experimental_config = experimental_config
        self.execution_trace_observer = execution_trace_observer or _options.observer_from_env()
        self.acc_events = acc_events
        self.set_custom_trace_id_callback(custom_trace_id_callback)
        self.post_processing_timeout_s = _options.checked_timeout(post_processing_timeout_s)
        self.operators = operators
        self.max_memory = max_memory
        _options.checked_memory(max_memory)
        self.at_limit = _options.checked_limit(at_limit)
        self.use_device = _options.device_name(asked)

        # torch's, kept because scripts read them
        self.profiler: PreparedProfiler | None = None
        self.has_cudagraphs = False
        self.mem_tl = None
        self.step_rec_fn = None
        self.preset_metadata: dict[str, str] = {}

        self.schedule = schedule
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = schedules.ask(self.schedule, 0)

        self._metadata = Metadata()
        self._recordings: list[Recording] = []
        self._said: set[str] = set()  # warnings that were given and are not repeated
        self._trace_id: str | None = None
        self._lost: str | None = None  # why the last window left no recording
        # Guards the fields below. Never held while the user's handler runs.
        self._lock = threading.RLock()
        self._run: _run.Run | None = None  # from start() to stop()
        self._last_run: _run.Run | None = None
        self._window: Window | None = None  # from warm-up to the end of a cycle
        self._claim: _active.Claim | None = None  # while there is a run or a window

    # ---- settings that may change while running

    @property
    def schedule(self) -> schedules.ScheduleFunction:
        return self._schedule

    @schedule.setter
    def schedule(self, value: Any) -> None:
        self._schedule = schedules.as_schedule(value)

    @property
    def on_trace_ready(self) -> Callable[..., Any] | None:
        return self._on_trace_ready

    @on_trace_ready.setter
    def on_trace_ready(self, value: Callable[..., Any] | None) -> None:
        _options.check_callable("on_trace_ready", value)
        self._on_trace_ready = value

    # ---- start, step, stop

    def __enter__(self) -> "Self":
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        try:
            self._stop_after(exc_val)
        finally:
            if self.execution_trace_observer is not None:
                self.execution_trace_observer.cleanup()

    def _stop_after(self, body_error: BaseException | None) -> None:
        """stop(), so that nothing it raises takes the place of the body's exception."""
        try:
            self.stop()
        except BaseException as error:
            self._leave_nothing()  # it was interrupted
            if body_error is None:
                raise
            try:
                notify(f"while the profiled code failed, stop() failed too: {last_line(error)}")
            except Warning:  # warnings are errors here; the body's comes first
                pass

    def start(self) -> None:
        """Begins afresh: step 0 and, where there is a schedule, its answer for it."""
        with self._lock:
            self._take_claim()
            try:
                if self._last_run is not None:
                    self.step_num = 0
                    self.current_action = schedules.ask(self.schedule, 0)
                self._run = _run.Run()
                self._said.clear()
                self._lost = None
                Window.check_present()
                self._follow(self.current_action)
            except BaseException:
                self._leave_nothing()
                raise

    def stop(self) -> None:
        """Ends the recording; twice, from another thread or without a start it is quiet."""
        with self._lock:
            run = self._run
            if run is None and self._window is None and self._claim is None:
                return
            try:
                finished = self._close_window()
            finally:  # an interrupted stop() can be called again
                self._run, self._last_run = None, run or self._last_run
                self._release_claim()
        if finished:
            self._trace_ready()
        if run is not None and run.windows == 0 and not run.said_lost:
            notify(_run.never_active_text(run, self.schedule))

    def step(self) -> None:
        """The next training step begins."""
        with self._lock:
            if self._run is None and not self._may_start_by_step():
                return
            step = self.step_num + 1
            action = schedules.ask(self.schedule, step)  # before any state changes
            run = self._run or self._start_by_step()
            previous, self.current_action = self.current_action, action
            self.step_num = step
            run.steps += 1
            window = self._window
            in_warmup = window is not None and not window.recording
            finished = (
                window is not None
                and _run.ends_cycle(previous, action, window.recording)
                and self._close_window()
            )
        if finished:
            self._trace_ready()
        if in_warmup and action.name == "NONE":
            self._say_once(_run.warmup_dropped_text(step))
        with self._lock:
            if self._run is run:  # the handler or another thread may have stopped it
                self._follow_later(action)

    def _may_start_by_step(self) -> bool:
        """step() outside start() and stop(): with a schedule, and if start() was never
        called, it starts, as with torch; otherwise it says why nothing is recorded."""
        if self._last_run is None and self.record_steps:
            return True
        if self._last_run is None:
            self._say_once(
                "step() was called but the profiler was not started, so nothing is recorded;"
                " call start() before the loop or put the loop into its with block"
            )
        elif not self._last_run.in_parent:
            self._say_once(
                "step() was called after stop(), so this step is not recorded; call start()"
                " to record again"
            )
        return False

    def _start_by_step(self) -> _run.Run:
        self._take_claim()
        self._run = _run.Run()
        return self._run

    # ---- transitions

    def _follow(self, action: "ProfilerAction") -> None:
        """Bring the window to where `action` wants it, and mark the step that begins."""
        name = action.name
        if name != "NONE" and self._window is None:
            self.prepare_trace()
        if name.startswith("RECORD") and self._window and not self._window.recording:
            self.start_trace()
            if self._run:
                self._run.windows += 1
        if self._window and self._run and (self._run.steps or self.record_steps):
            self._window.mark_step(self.step_num)

    def _follow_later(self, action: "ProfilerAction") -> None:
        """In the middle of training a window that does not open costs a warning, no more."""
        try:
            self._follow(action)
        except Exception as error:  # noqa: BLE001
            try:
                self._drop_window()
            finally:
                self._lose(f"recording could not begin at step {self.step_num}", error)

    def _close_window(self) -> bool:
        """Whether a recording came out of it."""
        if self._window is None:
            return False
        recorded = self._window.recording
        try:
            self.stop_trace()
        except Exception as error:  # noqa: BLE001
            self._lose(f"the window that ended at step {self.step_num} is lost", error)
            return False
        return recorded

    def _lose(self, what: str, error: Exception) -> None:
        self._lost = f"{what}: {last_line(error)}"
        for run in (self._run, self._last_run):
            if run is not None:
                run.said_lost = True
        self._say_once(f"{self._lost}. Training goes on.", key=what.partition(" step ")[0])

    def _drop_window(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None

    def _trace_ready(self) -> None:
        handler = self.on_trace_ready
        if handler is None:
            return
        try:
            handler(self)
        except Exception as error:  # noqa: BLE001
            self._say_once(
                f"on_trace_ready failed: {last_line(error)}. Training goes on; the recording"
                " is kept and can be exported after the handler is repaired"
                " (prof.recording, prof.save(path)).",
                key="on_trace_ready",
            )

    # ---- low level, as in torch

    def prepare_trace(self) -> None:
        """Hooks in, in warm-up; start_trace() begins the window."""
        with self._lock:
            if self._window is not None:
                raise RuntimeError(
                    "prepare_trace(): a trace is prepared already; call stop_trace() first"
                )
            new_claim = self._claim is None
            if new_claim:
                self._take_claim()
            try:
                options = _options.collection_options(self, self._say_once)
                trace_id = _options.new_trace_id(self.custom_trace_id_callback, self._say_once)
                self._window = Window(options, self.execution_trace_observer)
                self._window.open()
            except BaseException:
                self._drop_window()
                if new_claim:
                    self._release_claim()
                raise
            self._trace_id = trace_id
            self.profiler = PreparedProfiler(self, trace_id)

    def start_trace(self) -> None:
        """The window begins; prepare_trace() comes first."""
        with self._lock:
            if self._window is None:
                raise RuntimeError(
                    "start_trace(): no trace is prepared; call prepare_trace() first, or"
                    " start(), which does both"
                )
            if not self._window.recording:
                self._window.begin()

    def stop_trace(self) -> None:
        """The window ends and becomes prof.recording; on_trace_ready is not called."""
        with self._lock:
            window = self._window
            if window is None:
                if self.profiler is None:
                    raise RuntimeError(
                        "stop_trace(): nothing was recorded; call prepare_trace() and"
                        " start_trace() first, or start()"
                    )
                return
            try:
                if window.recording:
                    self._keep(window.finish(self._header()))
            finally:
                self._drop_window()
                if self._run is None:
                    self._release_claim()

    def _keep(self, recording: "Recording | None") -> None:
        if recording is None:
            return
        kept = self._recordings if self.acc_events else []
        self._recordings = [*kept, recording]
        self._lost = None

    def _header(self) -> dict[str, Any]:
        """Whatever is wrong with metadata, it must not cost the recording."""
        metadata = _options.option_flags(self)
        try:
            if info := distributed_info():
                metadata["distributedInfo"] = info
            for key, text in self.preset_metadata.items():
                metadata[key] = json.loads(checked_json(key, text))
        except Exception as error:  # noqa: BLE001
            self._say_once(f"metadata is incomplete: {last_line(error)}")
        metadata.update(self._metadata.take_for_window())
        return {
            "options": _options.options_asked(self),
            "metadata": metadata,
            "trace_id": self._trace_id,
        }

    def toggle_collection_dynamic(
        self, enable: bool, activities: "Iterable[ProfilerActivity]"
    ) -> None:
        """Before a window is prepared it does nothing, as with torch."""
        parse_activities(activities)
        if self._window is not None:
            self._say_once(
                "toggle_collection_dynamic() has no effect: memprof records a window as a"
                " whole, because memory totals with a gap in them are wrong; use a schedule"
                " to choose the steps"
            )

    # ---- results

    @property
    def recording(self) -> "Recording":
        """The last finished window, with metadata that was added to it since."""
        with self._lock:
            recordings = self._recordings
            if not recordings:
                raise RuntimeError(self._why_no_recording())
            in_window = self._window is not None and self._window.recording
            if not in_window and (late := self._metadata.take_late()):
                recordings[-1] = recordings[-1].with_metadata(late)
            return recordings[-1]

    @property
    def recordings(self) -> "tuple[Recording, ...]":
        """All finished windows with acc_events=True, otherwise the last one."""
        return (*self._recordings[:-1], self.recording) if self._recordings else ()

    def _why_no_recording(self) -> str:
        run, window = self._run, self._window
        if self._lost:
            return f"there is no recording: {self._lost}"
        if window is not None and window.recording:
            return _run.STILL_RECORDING
        if run is not None:
            return _run.waiting_text(run, self.schedule)
        if self._last_run is None:
            return _run.NOT_STARTED
        if self._last_run.in_parent:
            return _run.IN_CHILD
        return _run.never_active_text(self._last_run, self.schedule)

    def summary(self, color: bool | None = None) -> str:
        """Where the memory went, in words."""
        text: str = self.recording.summary(color=color)
        return text

    def save(self, path: "str | os.PathLike[str]") -> None:
        """To a file that memprof.load() reads."""
        self.recording.save(path)

    def export_chrome_trace(
        self, path: "str | os.PathLike[str]", use_python_export: bool = False
    ) -> None:
        """Chrome/Perfetto trace of the last finished window, gzip if the name ends in .gz.
        `use_python_export` is torch's choice of two writers; memprof has one."""
        self.recording.export_chrome_trace(path)

    # ---- metadata

    def add_metadata(self, key: str, value: str) -> None:
        """A text for the recording, whatever is in it."""
        self._metadata.add(key, value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """A JSON text for the recording; ValueError if it is not JSON."""
        self._metadata.add_json(key, value)

    def preset_metadata_json(self, key: str, value: str) -> None:
        """As add_metadata_json(), for every window; add_metadata_json() goes before it."""
        self.preset_metadata[checked_key(key)] = checked_json(key, value)

    def set_custom_trace_id_callback(self, callback: Callable[[], str] | None) -> None:
        """Asked for an id at the start of each cycle."""
        _options.check_callable("custom_trace_id_callback", callback)
        self.custom_trace_id_callback = callback

    def get_trace_id(self) -> str | None:
        """The id of the current or last window; None before the first."""
        return self._trace_id

    # ---- process

    def _leave_nothing(self) -> None:
        """After a start() that failed or a stop() that was interrupted."""
        with self._lock:
            try:
                self._drop_window()
            finally:
                self._run = None
                self._release_claim()

    def _take_claim(self) -> None:
        if self._claim is not None:
            raise RuntimeError(
                f"this memprof.profile was already started at {self._claim.where} and is"
                " still recording; call stop() on it before starting it again"
            )
        self._claim = _active.Claim(self, "memprof.profile")
        try:
            self._claim.take()
        except RuntimeError:
            self._claim = None
            raise

    def _release_claim(self) -> None:
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def _stop_at_exit(self, where: str) -> None:
        self._say_once(
            f"the profile started at {where} was never stopped; it is stopped now, at exit."
            " Call stop() or use a with block"
        )
        if self._run is None:
            self.stop_trace()
        self.stop()

    def _forget_parent(self) -> None:
        """In the child of a fork: the recording is the parent's, and so may be the lock."""
        self._lock = threading.RLock()
        self._run = self._window = self._claim = None
        self._last_run = _run.Run(in_parent=True)

    def _say_once(self, text: str, key: str | None = None) -> None:
        if (key or text) in self._said:
            return
        self._said.add(key or text)
        notify(text)
