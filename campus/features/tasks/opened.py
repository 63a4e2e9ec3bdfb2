"""What background tasks give a campus: an entry before the gate of each building whose author has them, and what documents say of them."""

from collections.abc import Mapping
from typing import Any

from campus.app import Campus
from campus.building import Building
from campus.catalog.server import OpenBuilding
from campus.features.tasks.background import BackgroundTasks
from campus.features.tasks.documents import TasksPlan
from campus.features.tasks.problems import PROBLEMS
from campus.features.tasks.runner import TaskRunner
from campus.features.tasks.store import TaskStore
from campus.http_parts import HttpPart
from campus.jobs.scheduler import process_name
from campus.paywall.gate import Gate
from campus.site import Site
from campus.steps import Entry, task_seller
from twins import ArgumentChecker, ToolOnServer


class Tasks(HttpPart):
    """The tasks of one process."""

    def __init__(self, campus: Campus, site: Site[Any, Any]) -> None:
        super().__init__(campus, site)
        store = TaskStore(site.storage, process=process_name(), now=campus.core.now, seller=task_seller(campus.steps))
        self._runner = TaskRunner(store, campus.keys.makers)

    async def run(self) -> None:
        """Run what is begun; the tasks that still run at the end are stopped, and told as interrupted."""
        await self._runner.run()

    def prepare(self, opened: OpenBuilding) -> None:
        """Have the author's server keep its tasks here."""
        if opened.has_tasks:
            from campus.features.tasks.extension import serve_stored_tasks  # with fastmcp-tasks, which is there only where authors use it

            serve_stored_tasks(opened.server)

    def entry(self, opened: OpenBuilding, gate: Gate, checkers: Mapping[str, ArgumentChecker]) -> Entry | None:
        """What begins the tasks of a building."""
        if not opened.has_tasks:
            return None
        from campus.features.tasks.extension import begin_as_task  # as above

        tools = {name: ToolOnServer(opened.server, checkers[name]) for name in opened.task_tools}
        return BackgroundTasks(gate, self.campus.paywall, self._runner, tools, begin_as_task)


building = Building(plans=TasksPlan, http=Tasks, problems=PROBLEMS)
