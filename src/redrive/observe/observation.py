"""Everything that observes a job from outside, while its process runs it."""

from __future__ import annotations

from typing import Self

from redrive.configuration import JobConfiguration
from redrive.masking import NO_MASK, Mask
from redrive.observe.observer import MetricsObserver
from redrive.observe.page import Page
from redrive.observe.survey import Survey
from redrive.streaming.lifecycle import JobControl


class Observation:
    """The metrics of a job, their page and the survey; a context."""

    def __init__(self, configuration: JobConfiguration, mask: Mask = NO_MASK) -> None:
        self._configuration = configuration
        self._mask = mask
        self.observer = MetricsObserver(configuration, mask)
        self.page: Page | None = None
        self._survey: Survey | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._survey is not None:
            self._survey.end()
        if self.page is not None:
            self.page.close()

    def listen(self) -> None:
        """Bind the address of the settings, if there is one.

        Raises:
            ConfigurationError: It cannot be bound.
        """
        if self._configuration.listen:
            metrics = self.observer.metrics
            self.page = Page(
                self._configuration.listen, metrics.registry, lambda: self.observer.health
            )

    def start(self, control: JobControl) -> None:
        """Begin to observe the job, to serve pages, and to ask for backlogs."""
        self._survey = Survey(
            self._configuration, control, self.observer.metrics.waiting, self._mask
        )
        control.add_observer(self.observer)
        control.add_observer(self._survey)
        if self.page is not None:
            self.page.start()
        self._survey.start()
